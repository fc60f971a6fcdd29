#include "worker/links/link_groups.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

// 2, 4, ... as long as they divide `count`, and `count`.
std::vector<int> Sizes(int count) {
  std::vector<int> sizes;
  for (int size = 2; size < count && count % size == 0; size *= 2) sizes.push_back(size);
  if (count > 1) sizes.push_back(count);
  return sizes;
}

int Partner(int number, int count) {
  const int partner = number ^ 1;
  return partner < count ? partner : -1;
}

}  // namespace

absl::StatusOr<RanksOnNodes> SpreadOf(const std::vector<double>& node_of_rank) {
  std::vector<int> counts;  // of ranks that follow each other on one node
  std::map<double, int> nodes;
  for (size_t rank = 0; rank < node_of_rank.size(); ++rank) {
    const bool is_new = rank == 0 || node_of_rank[rank] != node_of_rank[rank - 1];
    if (is_new) counts.push_back(0);
    ++counts.back();
    ++nodes[node_of_rank[rank]];
  }
  const bool are_even =
      std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  if (counts.empty() || !are_even || nodes.size() != counts.size()) {
    return absl::FailedPreconditionError(
        absl::StrCat("links are measured among equally many ranks of each node, one node after the "
                     "other; these have ",
                     absl::StrJoin(counts, ", ")));
  }
  return RanksOnNodes{.nodes = static_cast<int>(counts.size()), .per_node = counts.front()};
}

std::vector<LinkGroups> GroupsToMeasure(const RanksOnNodes& spread) {
  std::vector<LinkGroups> groups;
  for (const int size : Sizes(spread.per_node)) groups.push_back({.ranks = size});
  for (const int nodes : Sizes(spread.nodes)) {
    groups.push_back({.ranks = nodes, .nodes = nodes, .stride = spread.per_node});
    if (spread.per_node > 1) groups.push_back({.ranks = nodes * spread.per_node, .nodes = nodes});
  }
  return groups;
}

// Groups of a stride lie within blocks of `ranks` x `stride` ranks.
std::vector<int> MembersOf(const LinkGroups& groups, int rank) {
  const int block = groups.ranks * groups.stride;
  const int first = rank / block * block + rank % groups.stride;
  std::vector<int> members;
  for (int i = 0; i < groups.ranks; ++i) members.push_back(first + i * groups.stride);
  return members;
}

int PeerInside(const RanksOnNodes& spread, int rank) {
  const int peer = Partner(rank % spread.per_node, spread.per_node);
  return peer < 0 ? -1 : rank / spread.per_node * spread.per_node + peer;
}

int PeerAcross(const RanksOnNodes& spread, int rank) {
  const int peer = Partner(rank / spread.per_node, spread.nodes);
  return peer < 0 ? -1 : peer * spread.per_node + rank % spread.per_node;
}

}  // namespace weft
