// Placement says which rank runs on which host and slot, for hosts that are offered with names and
// sizes of their own; the planner knows no more of them than how many there are. Pure.
//
// - A tp group stays inside one host wherever it fits: it talks most (Narayanan et al.,
// SC'21, 3.2).
// - As many ranks on each host as the smallest that is used takes: a step is as slow as its fullest
//   host, and the planner prices hosts that are alike.
// - A replica's stages are near each other, and replicas apart: where it is known what hosts share
//   (a rack, a switch), each replica is inside one such domain wherever it has room, and as many
//   replicas are in each, so that a domain that fails takes few with it.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/spec/layout.h"

namespace weft {

// A HostOffer is what an agent brings.
struct HostOffer {
  std::string name;
  int slots = 0;            // devices, or CPU slots
  std::string domain = {};  // hosts of one domain fail together; empty: nothing is known
};

struct PlacedRank {
  int host = 0;  // index of the offer
  int slot = 0;  // on that host, from 0
  friend bool operator==(const PlacedRank&, const PlacedRank&) = default;
};

struct Placement {
  std::vector<PlacedRank> ranks;  // by rank
  int ranks_per_host = 0;         // the last host may have fewer
  std::vector<std::string> reasons;
};

// InvalidArgument: the hosts have no place for all ranks; the message says how many are missing.
// REQUIRES: each offer has at least one slot.
absl::StatusOr<Placement> PlaceRanks(const Layout& layout, absl::Span<const HostOffer> hosts);

// A line per host: its ranks, and which part of the layout they are; of more than `most_hosts` the
// first and the last; then the reasons.
std::string PlacementText(const Layout& layout, absl::Span<const HostOffer> hosts,
                          const Placement& placement, int most_hosts = 8);

}  // namespace weft
