// bf16: any layout computes the same thing within a stated bound, near what fp32 computes. Real
// processes, and proof that the bound still sees what is wrong.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;

JobSpec InBf16(JobSpec job) {
  job.training.mixed_precision = Precision::kBf16;
  return job;
}

struct LayoutCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int zero_stage = 0;
};

Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
  layout.zero_stage = c.zero_stage;
  return layout;
}

class AnyLayoutInBf16 : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyLayoutInBf16, TrainsAsASingleRankDoes) {
  const JobSpec job = InBf16(EnglishJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyLayoutInBf16, TrainsLlamaAsASingleRankDoes) {
  const JobSpec job = InBf16(EnglishLlamaJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyLayoutInBf16, TrainsTheSameBitsTwice) {
  const JobSpec job = InBf16(EnglishJob());
  ExpectTheSameBitsTwice(job, LayoutOf(GetParam(), job));
}

INSTANTIATE_TEST_SUITE_P(Parity, AnyLayoutInBf16,
                         testing::Values(LayoutCase{"dp2_zero1", 2, 1, 1, k1f1b, 2, 1},
                                         LayoutCase{"tp2", 1, 2, 1, k1f1b, 4},
                                         LayoutCase{"dp2_zero3", 2, 1, 1, k1f1b, 2, 3},
                                         LayoutCase{"zb_h1_pp2", 1, 1, 2,
                                                    ScheduleKind::kZeroBubbleH1, 1},
                                         LayoutCase{"dp2_tp2_pp2", 2, 2, 2, k1f1b, 1}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// Loss by loss within u = 2^-8, the share of one rounding; both fall by more than a nat.
TEST(Bf16, HasTheCurveOfFp32) {
  for (const JobSpec& job : {EnglishJob(), EnglishLlamaJob()}) {
    const Curve wide = SingleRank(job);
    const Curve narrow = SingleRank(InBf16(job));
    ASSERT_EQ(narrow.losses.size(), wide.losses.size());
    double largest = 0;
    for (size_t step = 0; step < wide.losses.size(); ++step) {
      largest = std::max(largest, std::abs(narrow.losses[step] / wide.losses[step] - 1));
    }
    EXPECT_LT(largest, 0x1p-8);
    EXPECT_GT(largest, 1e-6) << "is it bf16 at all?";
    EXPECT_LT(narrow.losses.back(), narrow.losses.front() - 1);
  }
}

struct BugCase {
  const char* name;
  PlantedBug bug;
  int dp, tp, pp;
  const char* seen_in;
};

class PlantedInBf16 : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInBf16, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = InBf16(EnglishJob());
  ExpectSeen(job, MakeLayout(job, c.dp, c.tp, c.pp, k1f1b, 2), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInBf16,
                         testing::Values(BugCase{"doubled_gradient", PlantedBug::kDoubledGradient,
                                                 2, 1, 1, "gradient blocks.3.mlp.down.bias"},
                                         BugCase{"norm_not_reduced", PlantedBug::kNormNotReduced, 1,
                                                 2, 1, "gradient norm of step 1:"},
                                         BugCase{"tensor_not_reduced",
                                                 PlantedBug::kTensorNotReduced, 1, 2, 1,
                                                 "gradient blocks.3.norm1.weight"},
                                         BugCase{"microbatch_weight", PlantedBug::kMicrobatchWeight,
                                                 1, 1, 1, "gradient final_norm.weight"},
                                         BugCase{"tied_not_reduced", PlantedBug::kTiedNotReduced, 1,
                                                 1, 2, "gradient embed.tokens.weight"},
                                         BugCase{"stale_transfer", PlantedBug::kStaleTransfer, 1, 1,
                                                 2, "gradient blocks.2.mlp.up.weight"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
