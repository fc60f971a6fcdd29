// A cure makes something fit where nothing does: a single change of what is fixed, of the machine
// or of the job, found by really solving it. Pure.
#pragma once
#include <string>
#include <vector>

#include "plan/search/space.h"
#include "plan/spec/layout.h"

namespace weft {

struct Cure {
  std::string change;  // "training.micro_batch_size 1", "cluster.nodes 12"
  Layout layout;       // fits then
};

// Cheapest first: values that the job fixes, each the nearest one that fits, then habits that the
// search leaves to the user, then all that is fixed at once, then the machine, then the job's
// mathematics. What FindPlan adds where nothing fits (offload, repairs) is counted on. Empty: none
// of them alone is enough.
// REQUIRES: the space of these has points, and none fits.
std::vector<Cure> CuresOf(const Question& question, const LayoutSpec& constraints, Purpose purpose);

// "; use training.micro_batch_size 1, or cluster.nodes 12"
std::string CuresText(const std::vector<Cure>& cures);

}  // namespace weft
