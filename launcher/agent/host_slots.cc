#include "launcher/agent/host_slots.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {

std::vector<int> UsedSlots(const HostSlots& slots, int devices) {
  std::vector<int> used = slots.only;
  std::sort(used.begin(), used.end());
  if (!used.empty()) return used;
  const int all = slots.all > 0 || slots.without.empty() ? slots.all : devices;
  for (int slot = 0; slot < all; ++slot) {
    const bool is_out =
        std::find(slots.without.begin(), slots.without.end(), slot) != slots.without.end();
    if (!is_out) used.push_back(slot);
  }
  return used;
}

absl::StatusOr<std::vector<int>> SlotsOfRanks(absl::Span<const int> used, int ranks) {
  std::vector<int> slots(static_cast<size_t>(ranks));
  if (used.empty()) {
    std::iota(slots.begin(), slots.end(), 0);
    return slots;
  }
  if (static_cast<size_t>(ranks) > used.size()) {
    return absl::ResourceExhaustedError(absl::StrCat(ranks, " ranks are to run here, on slots ",
                                                     absl::StrJoin(used, ", "),
                                                     ", which are fewer"));
  }
  std::copy_n(used.begin(), slots.size(), slots.begin());
  return slots;
}

absl::Status CheckGpuSlots(absl::Span<const int> slots, int gpus) {
  for (const int slot : slots) {
    if (slot < gpus || gpus == 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " is none of this host's ", gpus,
                                                   gpus == 1 ? " GPU" : " GPUs", "; use 0 to ",
                                                   gpus - 1, " in --include and --exclude"));
  }
  return absl::OkStatus();
}

std::string SlotsText(absl::Span<const int> ranks, absl::Span<const int> slots) {
  return absl::StrCat(ranks.size() == 1 ? "rank " : "ranks ", absl::StrJoin(ranks, ", "),
                      slots.size() == 1 ? " on slot " : " on slots ", absl::StrJoin(slots, ", "));
}

}  // namespace weft
