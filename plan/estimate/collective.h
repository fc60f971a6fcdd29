// Seconds of collectives on a group of ranks, by the standard alpha-beta model: the best of the
// algorithms that the machine has. Where `weft calibrate` has measured the collective among ranks
// of a node, its points say how long it takes; the model then only says how that grows beyond them
// and with other numbers of ranks. Pure.
#pragma once
#include "plan/estimate/machine.h"

namespace weft {

// Ranks that talk: `ranks` of them, a fixed `stride` apart in the rank order, so that a node holds
// a run of them; the other ranks of the node are in groups that talk at the same time.
struct PricedGroup {
  double ranks = 1;
  double per_node = 1;  // of the group on one node
};

// The group of `ranks` with `stride` on `machine`, of a world of `world` ranks.
PricedGroup GroupOf(const Machine& machine, int ranks, int stride, int world);

// `bytes`: of the full tensor, before or after the collective, whichever is larger. 0 for one rank.
double AllReduceSeconds(const Machine& machine, const PricedGroup& group, double bytes);
double AllGatherSeconds(const Machine& machine, const PricedGroup& group, double bytes);
double ReduceScatterSeconds(const Machine& machine, const PricedGroup& group, double bytes);
// `bytes`: what each rank holds, a part for every rank.
double AllToAllSeconds(const Machine& machine, const PricedGroup& group, double bytes);
// One message between neighbours of a ring or chain that lies within aligned runs of `span` ranks,
// all of a node's at once: over the slowest of its links.
double SendSeconds(const Machine& machine, int span, int world, double bytes);

}  // namespace weft
