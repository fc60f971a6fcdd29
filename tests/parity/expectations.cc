#include "tests/parity/expectations.h"

#include <cstdlib>
#include <fstream>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "plan/block/tensors.h"
#include "tests/parity/kept_curves.h"
#include "tests/parity/training.h"

namespace weft {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string NameOf(const testing::TestParamInfo<LayoutCase>& tested) {
  return tested.param.name;
}
std::string NameOf(const testing::TestParamInfo<BugCase>& tested) {
  return tested.param.name;
}

namespace {

Curve MustBe(absl::StatusOr<Curve> curve) {
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? *std::move(curve) : Curve();
}

void ExpectTheSameBits(const Curve& first, const Curve& second, int ranks) {
  ASSERT_FALSE(first.loss_hex.empty());
  EXPECT_EQ(first.loss_hex, second.loss_hex);
  EXPECT_EQ(first.gradients, second.gradients);
  ASSERT_EQ(static_cast<int>(first.shard_hashes.size()), ranks);
  EXPECT_EQ(first.shard_hashes, second.shard_hashes) << "weights and moments after all steps";
}

}  // namespace

Curve MustTrain(ParityJob parity) {
  parity.layout = Fitted(parity.job, parity.layout);
  return MustBe(parity.counts_allocations ? Train(parity) : FreshCurve(parity));
}

Curve MustHave(ParityJob parity) {
  parity.layout = Fitted(parity.job, parity.layout);
  return MustBe(KeptCurve(parity));
}

Curve SingleRank(const JobSpec& job) {
  return MustHave({.job = job, .layout = {.micro_batch_size = job.training.global_batch_size}});
}

JobSpec WithSgdAndNoClipping(JobSpec job) {
  job.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0};
  job.lr_scheduler = {.type = LrSchedule::kConstant};
  job.training.gradient_clipping = 0;
  return job;
}

Curve SingleRankLike(const JobSpec& job, const Layout& layout) {
  const Layout whole = {.micro_batch_size = job.training.global_batch_size};
  const Layout like = OneRankLike(job, Fitted(job, layout));
  Curve curve = MustHave({.job = job, .layout = like});
  if (like != whole) {
    EXPECT_THAT(Differences(curve, SingleRank(job), BoundsOfOtherRows(job)), IsEmpty());
  }
  return curve;
}

void ExpectTrainsAsASingleRank(const JobSpec& job, const Layout& layout) {
  const Curve single = SingleRankLike(job, layout);
  ASSERT_EQ(single.losses.size(), 20u);
  ASSERT_LT(single.losses.back(), single.losses.front() - 1) << "so flat a curve proves little";
  EXPECT_THAT(Differences(MustTrain({.job = job, .layout = layout}), single, BoundsOf(job, layout)),
              IsEmpty());
}

void ExpectTheSameBitsTwice(const JobSpec& job, const Layout& layout) {
  ExpectTheSameBits(MustHave({.job = job, .layout = layout}),
                    MustTrain({.job = job, .layout = layout}), layout.world_size());
}

void ExpectTheSameBitsOverMpi(JobSpec job, const Layout& layout) {
  job.training.steps = 4;  // with each all that goes through MPI has gone through it
  ExpectTheSameBits(MustHave({.job = job, .layout = layout}),
                    MustTrain({.job = job, .layout = layout, .ranks = Ranks::kProcesses}),
                    layout.world_size());
}

void ExpectSeen(const JobSpec& job, const BugCase& bug) {
  const Curve single = SingleRankLike(job, bug.layout);
  // The wrappers alone change nothing, so what is seen next is the bug and nothing else.
  const Curve without = MustHave({.job = job, .layout = bug.layout, .wrapped = true});
  const Bounds bounds = BoundsOf(job, bug.layout);
  ASSERT_THAT(Differences(without, single, bounds), IsEmpty());
  const Curve with = MustTrain({.job = job, .layout = bug.layout, .wrapped = true, .bug = bug.bug});
  ASSERT_EQ(with.losses.size(), 20u) << "it must be the comparison that fails, not the run";
  const std::vector<std::string> differences = Differences(with, single, bounds);
  EXPECT_THAT(differences, Contains(HasSubstr(bug.seen_in)));
  if (job.training.mixed_precision != Precision::kFp32) return;  // its losses have a wide bound
  EXPECT_THAT(differences, Contains(HasSubstr("loss of step"))) << "the curve shows it, too";
}

void ExpectAgreesWithNumpy(const std::vector<WitnessCase>& cases) {
  for (const WitnessCase& c : cases) {
    const auto witness = TrainInNumpy(c.job);
    ASSERT_TRUE(witness.ok()) << witness.status();
    ASSERT_EQ(witness->losses.size(), 10u);
    ASSERT_EQ(witness->gradients.size(), Tensors(c.job.model).size());
    const Curve ours = MustTrain({.job = c.job, .layout = {.micro_batch_size = 4}});
    EXPECT_THAT(Differences(ours, *witness, BoundsOf(c.job, {})), IsEmpty()) << c.name;
  }
}

void ExpectWhatNumpySaidBefore(const JobSpec& job, const std::string& golden_path) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    const auto witness = TrainInNumpy(job);
    ASSERT_TRUE(witness.ok()) << witness.status();
    std::ofstream(golden_path) << nlohmann::json({{"losses", witness->losses},
                                                  {"grad_norms", witness->grad_norms}})
                                      .dump(1)
                               << "\n";
  }
  std::ifstream file(golden_path);
  const auto golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(golden.is_object()) << golden_path;
  Curve committed;
  committed.losses = golden.at("losses").get<std::vector<double>>();
  committed.grad_norms = golden.at("grad_norms").get<std::vector<double>>();
  ASSERT_EQ(committed.losses.size(), 10u);
  Curve ours = SingleRank(job);
  ours.gradients.clear();
  EXPECT_THAT(Differences(ours, committed), IsEmpty());
  if (!HasNumpy().ok()) return;
  const auto witness = TrainInNumpy(job);
  ASSERT_TRUE(witness.ok()) << witness.status();
  for (size_t step = 0; step < 10; ++step) {
    EXPECT_NEAR(witness->losses[step], committed.losses[step], 1e-11) << "step " << step + 1;
    EXPECT_NEAR(witness->grad_norms[step], committed.grad_norms[step], 1e-10);
  }
}

}  // namespace weft
