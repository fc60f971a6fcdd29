#include "plan/shards/batch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/spec/layout_text.h"

namespace weft {
namespace {

TEST(FirstSample, EveryLayoutReadsEachSampleOfAStepExactlyOnce) {
  constexpr int64_t kGlobalBatch = 24;
  int layouts = 0;
  for (int dp = 1; dp <= kGlobalBatch; ++dp) {
    for (int64_t micro = 1; micro <= kGlobalBatch; ++micro) {
      if (kGlobalBatch % (dp * micro) != 0) continue;
      ++layouts;
      Layout layout;
      layout.dp = dp;
      layout.micro_batch_size = micro;
      layout.gradient_accumulation_steps = kGlobalBatch / (dp * micro);
      for (const int64_t step : {1, 2, 1000}) {
        std::vector<int> reads(kGlobalBatch);
        for (int dp_index = 0; dp_index < dp; ++dp_index) {
          for (int64_t m = 0; m < layout.gradient_accumulation_steps; ++m) {
            const int64_t first = FirstSample(layout, step, dp_index, m);
            for (int64_t sample = first; sample < first + micro; ++sample) {
              const int64_t in_step = sample - (step - 1) * kGlobalBatch;
              ASSERT_GE(in_step, 0);
              ASSERT_LT(in_step, kGlobalBatch);
              ++reads[static_cast<size_t>(in_step)];
            }
          }
        }
        EXPECT_EQ(std::count(reads.begin(), reads.end(), 1), kGlobalBatch)
            << LayoutText(layout) << " step " << step;
      }
    }
  }
  EXPECT_EQ(layouts, 30);  // ordered factorisations of 24 into three
}

TEST(FirstSample, DoesNotDependOnTensorOrPipelineDegree) {
  Layout flat;
  flat.dp = 2;
  flat.micro_batch_size = 3;
  flat.gradient_accumulation_steps = 2;
  Layout deep = flat;
  deep.tp = 4;
  deep.pp = 2;
  EXPECT_EQ(FirstSample(flat, 5, 1, 1), 4 * 12 + 6 + 3);
  EXPECT_EQ(FirstSample(deep, 5, 1, 1), FirstSample(flat, 5, 1, 1));
}

TEST(PositionsOf, RanksHoldEachPositionOnceAndAsManyPairsToAttendTo) {
  constexpr int64_t kSeqLen = 48;
  for (const int cp : {1, 2, 3, 4, 6, 8}) {
    const Layout layout = {.cp = cp};
    std::vector<int64_t> all;
    int64_t pairs_of_first = 0;
    for (int index = 0; index < cp; ++index) {
      const std::vector<int64_t> positions = PositionsOf(layout, kSeqLen, index);
      EXPECT_EQ(std::ssize(positions), kSeqLen / cp);
      int64_t pairs = 0;
      for (const int64_t position : positions) pairs += position + 1;
      if (index == 0) pairs_of_first = pairs;
      EXPECT_EQ(pairs, pairs_of_first) << "cp " << cp << " index " << index;
      all.insert(all.end(), positions.begin(), positions.end());
    }
    std::sort(all.begin(), all.end());
    for (int64_t i = 0; i < kSeqLen; ++i) EXPECT_EQ(all[static_cast<size_t>(i)], i);
  }
}

TEST(PositionsOf, AreTheRunFromTheFrontAndTheOneFromTheBack) {
  EXPECT_EQ(PositionsOf({.cp = 2}, 8, 0), (std::vector<int64_t>{0, 1, 6, 7}));
  EXPECT_EQ(PositionsOf({.cp = 2}, 8, 1), (std::vector<int64_t>{2, 3, 4, 5}));
  EXPECT_EQ(PositionsOf({}, 3, 0), (std::vector<int64_t>{0, 1, 2}));
}

}  // namespace
}  // namespace weft
