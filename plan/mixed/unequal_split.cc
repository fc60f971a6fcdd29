#include "plan/mixed/unequal_split.h"

#include <algorithm>
#include <cstddef>

namespace weft {
namespace {

// Neighbours that are alike take their next blocks one after the other, the last of them first:
// `left` of them still have `blocks` each, the others one more.
struct AlikeStages {
  size_t first = 0;
  int64_t count = 0;
  int64_t left = 0;
  int64_t blocks = 1;
};

bool IsAlike(const UnequalStage& a, const UnequalStage& b) {
  return a.block_s == b.block_s && a.ends_s == b.ends_s && a.most == b.most;
}

std::vector<AlikeStages> RunsOf(absl::Span<const UnequalStage> stages) {
  std::vector<AlikeStages> runs;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const bool goes_on = !runs.empty() && IsAlike(stages[runs.back().first], stages[stage]);
    if (!goes_on) runs.push_back({.first = stage});
    ++runs.back().count;
    ++runs.back().left;
  }
  return runs;
}

}  // namespace

// Each block goes where it ends first, of equals to the last. A stage that takes one more block
// takes longer, so the slowest stage is as fast as in any split.
std::optional<std::vector<int64_t>> UnequalSplit(int64_t num_blocks,
                                                 absl::Span<const UnequalStage> stages) {
  const auto count = static_cast<int64_t>(stages.size());
  const bool holds_any = std::all_of(stages.begin(), stages.end(),
                                     [](const UnequalStage& stage) { return stage.most >= 1; });
  if (count == 0 || count > num_blocks || !holds_any) return std::nullopt;
  std::vector<AlikeStages> runs = RunsOf(stages);
  for (int64_t left = num_blocks - count; left > 0;) {
    AlikeStages* next = nullptr;
    double next_s = 0;
    for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
      const UnequalStage& own = stages[run->first];
      if (run->blocks >= own.most) continue;
      const double more_s = own.ends_s + static_cast<double>(run->blocks + 1) * own.block_s;
      if (next != nullptr && more_s >= next_s) continue;
      next = &*run;
      next_s = more_s;
    }
    if (next == nullptr) return std::nullopt;
    const int64_t taken = std::min(left, next->left);
    left -= taken;
    next->left -= taken;
    if (next->left > 0) break;  // no block is left
    next->left = next->count;
    ++next->blocks;
  }
  std::vector<int64_t> blocks;
  blocks.reserve(stages.size());
  for (const AlikeStages& run : runs) {
    blocks.insert(blocks.end(), static_cast<size_t>(run.left), run.blocks);
    blocks.insert(blocks.end(), static_cast<size_t>(run.count - run.left), run.blocks + 1);
  }
  return blocks;
}

}  // namespace weft
