// The split of blocks over stages that makes the slowest stage as fast as can be, in constant time:
// embedding and head count as so many blocks of the first and of the last stage. Memory has no say
// here (repair.h). Pure.
#pragma once
#include <cstdint>
#include <vector>

namespace weft {

// Stage 0 holds `first` blocks, the last one `last`; of those between, `fewer` hold one less than
// `inner`: the earliest, as those hold most microbatches in flight.
struct Split {
  int64_t first = 1;
  int64_t inner = 0;  // 0 for two stages
  int64_t last = 1;
  int64_t fewer = 0;
  friend bool operator==(const Split&, const Split&) = default;
};

// `embedding`, `head`: what the ends take besides, in blocks' time. Every stage gets a block.
// REQUIRES: 2 <= stages <= num_blocks; embedding, head >= 0.
Split BalancedSplit(int64_t num_blocks, int stages, double embedding, double head);

// Return what the slowest stage takes, in blocks' time: of `split`, and of the even split, earlier
// stages the larger.
double SlowestStage(const Split& split, double embedding, double head);
double SlowestEvenStage(int64_t num_blocks, int stages, double embedding, double head);

std::vector<int64_t> StageBlocksOf(const Split& split, int stages);

}  // namespace weft
