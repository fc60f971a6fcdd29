// Any layout computes the same thing: real text, real processes, real messages, and proof that the
// comparison would notice if it were not so.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

constexpr ScheduleKind kGpipe = ScheduleKind::kGpipe;
constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;

struct LayoutCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
};

Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  return MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
}

class AnyLayout : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyLayout, TrainsAsASingleRankDoes) {
  const JobSpec job = EnglishJob();
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyLayout, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(EnglishJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyLayout, TrainsTheSameBitsTwice) {
  const JobSpec job = EnglishJob();
  ExpectTheSameBitsTwice(job, LayoutOf(GetParam(), job));
}

INSTANTIATE_TEST_SUITE_P(Parity, AnyLayout,
                         testing::Values(LayoutCase{"single", 1, 1, 1, k1f1b, 2},
                                         LayoutCase{"dp2", 2, 1, 1, k1f1b, 2},
                                         LayoutCase{"tp2", 1, 2, 1, k1f1b, 4},
                                         LayoutCase{"pp2_gpipe", 1, 1, 2, kGpipe, 2},
                                         LayoutCase{"pp2_1f1b", 1, 1, 2, k1f1b, 2},
                                         LayoutCase{"dp2_pp2", 2, 1, 2, k1f1b, 2},
                                         LayoutCase{"tp2_pp2", 1, 2, 2, k1f1b, 2},
                                         LayoutCase{"dp2_tp2_pp2", 2, 2, 2, k1f1b, 1}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- the comparison bites
// ------------------------------------------------------------------------

struct BugCase {
  const char* name;
  PlantedBug bug;
  int dp, tp, pp;
  const char* seen_in;  // the words of the difference that must be among those found
};

class Planted : public testing::TestWithParam<BugCase> {};

TEST_P(Planted, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = EnglishJob();
  ExpectSeen(job, MakeLayout(job, c.dp, c.tp, c.pp, k1f1b, 2), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(Parity, Planted,
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
                                                 1, 2, "gradient embed.tokens.weight"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(Differences, AreFoundInEachPartAndAtItsTolerance) {
  Curve expected;
  expected.losses = {5, 4};
  expected.grad_norms = {1, 2};
  expected.gradients = {{"large", {3000, 4000}}, {"zero", {0, 0}}};
  const auto differ = [&](const auto& change) {
    Curve got = expected;
    change(got);
    return Differences(got, expected);
  };
  EXPECT_THAT(differ([](Curve&) {}), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.losses[1] *= 1 + 0.9e-6; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.losses[1] *= 1 + 1.1e-6; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.losses[1] = std::nan(""); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.losses.pop_back(); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.grad_norms[0] *= 1 - 0.9e-5; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.grad_norms[0] *= 1 - 1.1e-5; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["large"][0] += 5000 * 1.9e-6; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.gradients["large"][0] += 5000 * 2.1e-6; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"][0] = 5 * 1.9e-6; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"][0] = 5 * 2.1e-6; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"][0] = std::nan(""); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients.erase("zero"); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"].pop_back(); }), Not(IsEmpty()));
}

}  // namespace
}  // namespace weft
