#include "plan/mixed/unequal_split.h"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <queue>
#include <utility>

namespace weft {

// Each block goes where it ends first. A stage that takes one more block takes longer, so the
// slowest stage is as fast as in any split.
std::optional<std::vector<int64_t>> UnequalSplit(int64_t num_blocks,
                                                 absl::Span<const UnequalStage> stages) {
  using Next = std::pair<double, int64_t>;  // the stage's time with one more block; less its index
  std::priority_queue<Next, std::vector<Next>, std::greater<>> next;
  std::vector<int64_t> blocks(stages.size(), 1);
  const auto offer = [&](size_t stage) {
    const UnequalStage& own = stages[stage];
    if (blocks[stage] >= own.most) return;
    const auto more = static_cast<double>(blocks[stage] + 1);
    next.emplace(own.ends_s + more * own.block_s, -static_cast<int64_t>(stage));
  };
  const auto count = static_cast<int64_t>(stages.size());
  const bool holds_any = std::all_of(stages.begin(), stages.end(),
                                     [](const UnequalStage& stage) { return stage.most >= 1; });
  if (count == 0 || count > num_blocks || !holds_any) return std::nullopt;
  for (size_t stage = 0; stage < stages.size(); ++stage) offer(stage);
  for (int64_t left = num_blocks - count; left > 0; --left) {
    if (next.empty()) return std::nullopt;
    const auto stage = static_cast<size_t>(-next.top().second);
    next.pop();
    ++blocks[stage];
    offer(stage);
  }
  return blocks;
}

}  // namespace weft
