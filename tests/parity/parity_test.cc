// Any layout computes the same thing: real text, real processes, real messages, and proof that the
// comparison would notice if it were not so.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/curve.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
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

Curve MustTrain(const ParityJob& parity) {
  auto curve = TrainUnderMpi(parity);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? *std::move(curve) : Curve();
}

Curve SingleRank(const JobSpec& job) {
  return MustTrain({.job = job, .layout = MakeLayout(job, 1, 1, 1, kGpipe, 8)});
}

JobSpec SgdJob() {
  JobSpec job = EnglishJob();
  job.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0};
  job.lr_scheduler = {.type = LrSchedule::kConstant};
  job.training.gradient_clipping = 0;
  return job;
}

class AnyLayout : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyLayout, TrainsAsASingleRankDoes) {
  const JobSpec job = EnglishJob();
  const Curve single = SingleRank(job);
  ASSERT_EQ(single.losses.size(), 20u);
  ASSERT_LT(single.losses.back(), single.losses.front() - 1) << "so flat a curve proves little";
  const Curve spread = MustTrain({.job = job, .layout = LayoutOf(GetParam(), job)});
  EXPECT_THAT(Differences(spread, single), IsEmpty());
}

// AdamW forgives a gradient that is off by a factor; SGD without clipping does not.
TEST_P(AnyLayout, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = SgdJob();
  const Curve single = SingleRank(job);
  ASSERT_EQ(single.losses.size(), 20u);
  ASSERT_LT(single.losses.back(), single.losses.front() - 1) << "so flat a curve proves little";
  const Curve spread = MustTrain({.job = job, .layout = LayoutOf(GetParam(), job)});
  EXPECT_THAT(Differences(spread, single), IsEmpty());
}

TEST_P(AnyLayout, TrainsTheSameBitsTwice) {
  const JobSpec job = EnglishJob();
  const Layout layout = LayoutOf(GetParam(), job);
  const Curve first = MustTrain({.job = job, .layout = layout});
  const Curve second = MustTrain({.job = job, .layout = layout});
  ASSERT_EQ(first.loss_hex.size(), 20u);
  EXPECT_EQ(first.loss_hex, second.loss_hex);
  EXPECT_EQ(first.gradients, second.gradients);
  ASSERT_EQ(static_cast<int>(first.shard_hashes.size()), layout.world_size());
  EXPECT_EQ(first.shard_hashes, second.shard_hashes) << "weights and moments after 20 steps";
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
  const Curve single = SingleRank(job);
  const Layout layout = MakeLayout(job, c.dp, c.tp, c.pp, k1f1b, 2);
  // The wrappers alone change nothing, so what is seen next is the bug and nothing else.
  const Curve without = MustTrain({.job = job, .layout = layout, .wrapped = true});
  ASSERT_THAT(Differences(without, single), IsEmpty());
  const Curve with = MustTrain({.job = job, .layout = layout, .wrapped = true, .bug = c.bug});
  ASSERT_EQ(with.losses.size(), 20u) << "it must be the comparison that fails, not the run";
  const std::vector<std::string> differences = Differences(with, single);
  EXPECT_THAT(differences, Contains(HasSubstr(c.seen_in)));
  EXPECT_THAT(differences, Contains(HasSubstr("loss of step"))) << "the curve shows it, too";
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
