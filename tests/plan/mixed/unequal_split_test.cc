#include "plan/mixed/unequal_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace weft {
namespace {

using testing::ElementsAre;

double Slowest(const std::vector<UnequalStage>& stages, const std::vector<int64_t>& blocks) {
  double slowest_s = 0;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    slowest_s = std::max(slowest_s, stages[stage].ends_s +
                                        static_cast<double>(blocks[stage]) * stages[stage].block_s);
  }
  return slowest_s;
}

// The slowest stage of the best of all splits; infinity: none.
double BestOfAll(const std::vector<UnequalStage>& stages, size_t stage, int64_t left,
                 std::vector<int64_t>& blocks) {
  double best_s = std::numeric_limits<double>::infinity();
  if (stage == stages.size()) return left == 0 ? Slowest(stages, blocks) : best_s;
  for (int64_t count = 1; count <= std::min(left, stages[stage].most); ++count) {
    blocks[stage] = count;
    best_s = std::min(best_s, BestOfAll(stages, stage + 1, left - count, blocks));
  }
  return best_s;
}

TEST(UnequalSplit, IsEvenOverEqualStagesAndLaterOnesHoldMore) {
  const UnequalStage stage{.block_s = 1, .ends_s = 0, .most = 100};
  EXPECT_THAT(*UnequalSplit(10, std::vector<UnequalStage>(4, stage)), ElementsAre(2, 2, 3, 3));
}

TEST(UnequalSplit, GivesMoreToTheFasterAndNoMoreThanFits) {
  std::vector<UnequalStage> stages = {{.block_s = 1, .ends_s = 0, .most = 100},
                                      {.block_s = 3, .ends_s = 0, .most = 100}};
  EXPECT_THAT(*UnequalSplit(12, stages), ElementsAre(9, 3));
  stages[0].most = 5;
  EXPECT_THAT(*UnequalSplit(12, stages), ElementsAre(5, 7));
  stages[1].most = 6;
  EXPECT_FALSE(UnequalSplit(12, stages));
}

TEST(UnequalSplit, HasABlockOnEachStageOrIsNone) {
  const UnequalStage stage{.block_s = 1, .ends_s = 0, .most = 9};
  EXPECT_FALSE(UnequalSplit(2, std::vector<UnequalStage>(3, stage)));
  EXPECT_FALSE(UnequalSplit(3, std::vector<UnequalStage>{}));
  EXPECT_FALSE(UnequalSplit(3, std::vector<UnequalStage>{stage, {.block_s = 1, .most = 0}}));
  EXPECT_THAT(*UnequalSplit(3, std::vector<UnequalStage>(3, stage)), ElementsAre(1, 1, 1));
}

TEST(UnequalSplit, IsAsFastAsTheBestOfAllSplits) {
  std::mt19937 random(11);
  const auto pick = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  int splits = 0;
  for (int i = 0; i < 300; ++i) {
    std::vector<UnequalStage> stages(static_cast<size_t>(pick(1, 4)));
    for (UnequalStage& stage : stages) {
      stage = {.block_s = pick(1, 9) / 4.0, .ends_s = pick(0, 8) / 4.0, .most = pick(0, 7)};
    }
    const int64_t num_blocks = pick(1, 12);
    std::vector<int64_t> blocks(stages.size());
    const double best_s = BestOfAll(stages, 0, num_blocks, blocks);
    const auto split = UnequalSplit(num_blocks, stages);
    ASSERT_EQ(split.has_value(), best_s < std::numeric_limits<double>::infinity()) << i;
    if (!split) continue;
    ++splits;
    EXPECT_EQ(std::accumulate(split->begin(), split->end(), int64_t{0}), num_blocks) << i;
    EXPECT_DOUBLE_EQ(Slowest(stages, *split), best_s) << i;
  }
  EXPECT_GT(splits, 100);
}

}  // namespace
}  // namespace weft
