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

class AnyLayout : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyLayout, TrainsAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(EnglishJob(), GetParam().layout);
}

TEST_P(AnyLayout, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  ExpectTrainsAsASingleRank(WithSgdAndNoClipping(EnglishJob()), GetParam().layout);
}

TEST_P(AnyLayout, TrainsTheSameBitsTwice) {
  ExpectTheSameBitsTwice(EnglishJob(), GetParam().layout);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, AnyLayout,
    testing::Values(LayoutCase{"single", {.micro_batch_size = 2}},
                    LayoutCase{"dp2", {.dp = 2, .micro_batch_size = 2}},
                    LayoutCase{"tp2", {.tp = 2, .micro_batch_size = 4}},
                    LayoutCase{
                        "pp2_gpipe",
                        {.pp = 2, .pp_schedule = ScheduleKind::kGpipe, .micro_batch_size = 2}},
                    LayoutCase{"pp2_1f1b", {.pp = 2, .micro_batch_size = 2}},
                    LayoutCase{"dp2_pp2", {.dp = 2, .pp = 2, .micro_batch_size = 2}},
                    LayoutCase{"tp2_pp2", {.pp = 2, .tp = 2, .micro_batch_size = 2}},
                    LayoutCase{"dp2_tp2_pp2", {.dp = 2, .pp = 2, .tp = 2, .micro_batch_size = 1}}),
    [](const auto& tested) { return NameOf(tested); });

// ---- the comparison bites

class Planted : public testing::TestWithParam<BugCase> {};

TEST_P(Planted, IsSeenByTheComparison) {
  ExpectSeen(EnglishJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, Planted,
                         testing::Values(BugCase{"doubled_gradient",
                                                 PlantedBug::kDoubledGradient,
                                                 {.dp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.mlp.down.bias"},
                                         BugCase{"norm_not_reduced",
                                                 PlantedBug::kNormNotReduced,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient norm of step 1:"},
                                         BugCase{"tensor_not_reduced",
                                                 PlantedBug::kTensorNotReduced,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.norm1.weight"},
                                         BugCase{"microbatch_weight",
                                                 PlantedBug::kMicrobatchWeight,
                                                 {.micro_batch_size = 2},
                                                 "gradient final_norm.weight"},
                                         BugCase{"tied_not_reduced",
                                                 PlantedBug::kTiedNotReduced,
                                                 {.pp = 2, .micro_batch_size = 2},
                                                 "gradient embed.tokens.weight"}),
                         [](const auto& tested) { return NameOf(tested); });

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
