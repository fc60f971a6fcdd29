#include "plan/search/balance.h"

#include <algorithm>
#include <cstddef>

#include "plan/errors.h"

namespace weft {
namespace {

constexpr double kRounding = 1e-9;  // a limit is the sum of what it was made of

// std::floor is a call where the compiler may not assume SSE 4.1. REQUIRES: 0 <= value < 2^63.
double Whole(double value) {
  return static_cast<double>(static_cast<int64_t>(value));
}

// Blocks that fit into `room`, at least one.
int64_t Within(double room) {
  return std::max<int64_t>(1, static_cast<int64_t>(room + kRounding));
}

// The most that each stage may hold so that none takes longer than `limit`.
Split Capacity(int stages, double limit, double embedding, double head) {
  return {.first = Within(limit - embedding),
          .inner = stages > 2 ? Within(limit) : 0,
          .last = Within(limit - head),
          .fewer = 0};
}

int64_t Sum(const Split& split, int stages) {
  return split.first + split.last + (stages - 2) * split.inner - split.fewer;
}

// No limit below this is enough, if blocks could be cut; ends that hold one block in any case are
// left out of the mean.
double LeastLimit(double blocks, double stages, double embedding, double head) {
  double least = (blocks + embedding + head) / stages;
  least = std::min(least, (blocks - 1 + embedding) / (stages - 1));
  least = std::min(least, (blocks - 1 + head) / (stages - 1));
  if (stages > 2) least = std::min(least, (blocks - 2) / (stages - 2));
  return least;
}

}  // namespace

Split BalancedSplit(int64_t num_blocks, int stages, double embedding, double head) {
  CHECK(stages >= 2 && stages <= num_blocks && embedding >= 0 && head >= 0);
  // The slowest stage takes a whole number of blocks and what its place adds.
  const double embedding_add = embedding - Whole(embedding);
  const double head_add = head - Whole(head);
  const double adds[] = {0, std::min(embedding_add, head_add), std::max(embedding_add, head_add)};
  const double least = LeastLimit(static_cast<double>(num_blocks), stages, embedding, head);
  // Each stage wastes less than one block of the limit, so a few tries are enough.
  Split split;
  int64_t surplus = -1;
  for (double whole = std::max(1.0, Whole(least)); surplus < 0; ++whole) {
    for (const double add : adds) {
      if (whole + add < least - kRounding || surplus >= 0) continue;
      split = Capacity(stages, whole + add, embedding, head);
      surplus = Sum(split, stages) - num_blocks;
    }
  }
  if (split.inner > 1) split.fewer = std::min<int64_t>(surplus, stages - 2);
  surplus -= split.fewer;
  for (int64_t* end : {&split.first, &split.last}) {
    const int64_t less = std::min(surplus, *end - 1);
    *end -= less;
    surplus -= less;
  }
  CHECK(surplus == 0);
  return split;
}

double SlowestStage(const Split& split, double embedding, double head) {
  return std::max({static_cast<double>(split.first) + embedding, static_cast<double>(split.inner),
                   static_cast<double>(split.last) + head});
}

double SlowestEvenStage(int64_t num_blocks, int stages, double embedding, double head) {
  const int64_t last = num_blocks / stages;
  const int64_t first = last + (num_blocks % stages > 0 ? 1 : 0);
  return std::max(static_cast<double>(first) + embedding, static_cast<double>(last) + head);
}

std::vector<int64_t> StageBlocksOf(const Split& split, int stages) {
  std::vector<int64_t> blocks(static_cast<size_t>(stages), split.inner);
  for (int64_t stage = 1; stage <= split.fewer; ++stage) --blocks[static_cast<size_t>(stage)];
  blocks.front() = split.first;
  blocks.back() = split.last;
  return blocks;
}

}  // namespace weft
