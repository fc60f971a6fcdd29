// This file chooses the groups of ranks that are measured, so that a planner knows what it asks
// for: groups inside a node, of whole nodes, and of one rank per node. Pure.
#pragma once
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// Groups of `ranks` ranks, spread evenly over `nodes` nodes. All groups of one kind together are
// the world, and are measured at once, as they talk at once in training.
struct LinkGroups {
  int ranks = 0;
  int nodes = 1;
  int stride = 1;  // from one rank of a group to the next one
  friend bool operator==(const LinkGroups&, const LinkGroups&) = default;
};

struct RanksOnNodes {
  int nodes = 1;
  int per_node = 1;
  friend bool operator==(const RanksOnNodes&, const RanksOnNodes&) = default;
};

// `node_of_rank`: any number for each node. FailedPrecondition unless each node has the same number
// of ranks, one after the other.
absl::StatusOr<RanksOnNodes> SpreadOf(const std::vector<double>& node_of_rank);

// Sizes 2, 4, ... inside a node and its whole; then nodes 2, 4, ... and all of them, as whole nodes
// and as one rank of each. None for a world of one rank.
std::vector<LinkGroups> GroupsToMeasure(const RanksOnNodes& spread);

// The ranks of the group that `rank` is in, ascending.
std::vector<int> MembersOf(const LinkGroups& groups, int rank);

// The rank that `rank` exchanges messages with, inside its node or on another one; -1: nobody,
// where the number of ranks or nodes is odd.
int PeerInside(const RanksOnNodes& spread, int rank);
int PeerAcross(const RanksOnNodes& spread, int rank);

}  // namespace weft
