#include "plan/batch_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

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
      layout.num_microbatches = kGlobalBatch / (dp * micro);
      for (const int64_t step : {1, 2, 1000}) {
        std::vector<int> reads(kGlobalBatch);
        for (int dp_index = 0; dp_index < dp; ++dp_index) {
          for (int64_t m = 0; m < layout.num_microbatches; ++m) {
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
  flat.num_microbatches = 2;
  Layout deep = flat;
  deep.tp = 4;
  deep.pp = 2;
  EXPECT_EQ(FirstSample(flat, 5, 1, 1), 4 * 12 + 6 + 3);
  EXPECT_EQ(FirstSample(deep, 5, 1, 1), FirstSample(flat, 5, 1, 1));
}

}  // namespace
}  // namespace weft
