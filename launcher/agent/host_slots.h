// The slots of a host: each takes one rank. On GPUs a slot's number is its device's, on CPUs its
// place among the host's cores. A person may keep some of them for this job. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace weft {

struct HostSlots {
  int all = 0;                 // of the host; 0: as many as the job says of a node
  std::vector<int> only = {};  // none: all
  std::vector<int> without = {};
};

// The slots that take ranks, ascending; none: 0, 1, 2 and so on, as many as there are ranks.
// `devices`: how many the host has, for who does not say which slots are left where some are left
// out.
std::vector<int> UsedSlots(const HostSlots& slots, int devices);

// The slots of `ranks` ranks, in the order of the ranks. `used`: UsedSlots. ResourceExhausted if
// there are fewer.
absl::StatusOr<std::vector<int>> SlotsOfRanks(absl::Span<const int> used, int ranks);

// InvalidArgument, naming the first slot that is no GPU of the host. 0 `gpus`: they are not known.
absl::Status CheckGpuSlots(absl::Span<const int> slots, int gpus);

// "ranks 2, 5 on slots 0, 3"
std::string SlotsText(absl::Span<const int> ranks, absl::Span<const int> slots);

}  // namespace weft
