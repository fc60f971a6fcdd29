// The split of blocks over stages that are not alike, as those on devices of several kinds: no
// other split makes the slowest stage faster. Pure.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/types/span.h"

namespace weft {

struct UnequalStage {
  double block_s = 0;  // of one block
  double ends_s = 0;   // of the network's ends that the stage holds, besides
  int64_t most = 0;    // blocks that fit
};

// Blocks of each stage, at least one. Among equals later stages hold more, as earlier ones hold
// more microbatches. Nothing: there are fewer blocks than stages, or more than fit.
std::optional<std::vector<int64_t>> UnequalSplit(int64_t num_blocks,
                                                 absl::Span<const UnequalStage> stages);

}  // namespace weft
