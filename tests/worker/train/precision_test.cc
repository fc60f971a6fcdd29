// Training in bf16 beside fp32 master weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "plan/memory/memory.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/train/step_report.h"

namespace weft {
namespace {

struct PrecisionCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int zero_stage = 0;
};

Layout LayoutOf(const PrecisionCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job);
  layout.zero_stage = c.zero_stage;
  return layout;
}

class Bf16Training : public testing::TestWithParam<PrecisionCase> {
 protected:
  Bf16Training() : job_(SmallJob(folder_.path())) {
    job_.training.mixed_precision = Precision::kBf16;
  }
  TrainingOutcome TrainLayout(const Layout& layout, const std::string& load = "") {
    return TrainWith(job_, layout, folder_.Make("run" + std::to_string(runs_++)), load);
  }
  Layout Single() const { return MakeLayout(1, 1, 1, k1f1b, 2, job_); }

  const TestFolder folder_;
  JobSpec job_;
  int runs_ = 0;
};

TEST_P(Bf16Training, IsThatOfASingleRankInThePlannedMemory) {
  const Layout layout = LayoutOf(GetParam(), job_);
  job_.training.steps = 1;
  // One rank that takes as many rows at once: some kernels sum a row otherwise among more, and the
  // sum may be rounded to the other neighbour (docs/reproducibility.md).
  const TrainingOutcome single =
      TrainLayout(MakeLayout(1, 1, 1, k1f1b, layout.micro_batch_size, job_));
  const TrainingOutcome other_rows = TrainLayout(Single());
  const TrainingOutcome outcome = TrainLayout(layout);
  ASSERT_EQ(single.status(), absl::OkStatus());
  ASSERT_EQ(other_rows.status(), absl::OkStatus());
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
  EXPECT_LT(GradientDifference(single, other_rows), 5 * 0x1p-8);
  // Rounded numbers are sums of the same terms but over tp, where u = 2^-8 counts for each sum.
  EXPECT_LT(GradientDifference(outcome, single), layout.tp > 1 ? 5 * 0x1p-8 : 2e-6);
  EXPECT_LT(RelativeDifference(outcome.losses(), single.losses()), 0x1p-8 / 4);
}

INSTANTIATE_TEST_SUITE_P(
    Precision, Bf16Training,
    testing::Values(
        PrecisionCase{"dp2", 2, 1, 1, k1f1b, 1}, PrecisionCase{"tp2", 1, 2, 1, k1f1b, 2},
        PrecisionCase{"tp4", 1, 4, 1, k1f1b, 2}, PrecisionCase{"pp2", 1, 1, 2, k1f1b, 1},
        PrecisionCase{"dp2_tp2_pp2", 2, 2, 2, ScheduleKind::kGpipe, 1},
        PrecisionCase{"zb", 1, 1, 2, ScheduleKind::kZeroBubbleH1, 1},
        PrecisionCase{"zero1", 4, 1, 1, k1f1b, 1, 1}, PrecisionCase{"zero3", 2, 1, 1, k1f1b, 1, 3}),
    [](const auto& tested) { return std::string(tested.param.name); });

class Bf16 : public Bf16Training {};

TEST_F(Bf16, TakesHalfTheWeightsAndActivations) {
  const auto bytes = [&](Precision precision, MemoryKind kind) {
    const Numerics numerics = {precision, OptimizerStates::kTwoMoments};
    return PlanRankMemory(job_.model, job_.batch(), Single(), 0, numerics).bytes(kind);
  };
  const int64_t weights = bytes(Precision::kFp32, MemoryKind::kWeights);
  EXPECT_EQ(bytes(Precision::kBf16, MemoryKind::kWeights), weights / 2);
  EXPECT_EQ(bytes(Precision::kBf16, MemoryKind::kMasterWeights), weights);
  EXPECT_EQ(bytes(Precision::kFp32, MemoryKind::kMasterWeights), 0);
  EXPECT_EQ(bytes(Precision::kBf16, MemoryKind::kGradients),
            bytes(Precision::kFp32, MemoryKind::kGradients));
  // All but the statistics: 4 numbers of a token and 4 log-sum-exps, of 576 activations and these.
  const auto activations = static_cast<double>(bytes(Precision::kFp32, MemoryKind::kActivations));
  EXPECT_NEAR(static_cast<double>(bytes(Precision::kBf16, MemoryKind::kActivations)) / activations,
              0.5, 0.01);
}

TEST_F(Bf16, GivesTheSameBitsTwiceAndAfterAResume) {
  const Layout layout = LayoutOf({"", 2, 2, 1, k1f1b, 1, 1}, job_);
  const TrainingOutcome whole = TrainLayout(layout);
  EXPECT_EQ(Bits(TrainLayout(layout).reports.front()), Bits(whole.reports.front()));
  job_.training.steps = 8;
  const TrainingOutcome first = TrainLayout(layout);
  ASSERT_EQ(first.committed.size(), 1);
  job_.training.steps = 20;
  const TrainingOutcome second = TrainLayout(layout, first.committed.front());
  ASSERT_EQ(second.status(), absl::OkStatus());
  EXPECT_EQ(second.weights, whole.weights);
  EXPECT_EQ(Bits(second.reports.front()),
            Bits({whole.reports.front().begin() + 8, whole.reports.front().end()}));
}

// The checkpoint holds fp32 weights and moments, so either precision goes on from the other's.
TEST_F(Bf16, GoesOnFromFp32AndBack) {
  for (const Precision from : {Precision::kFp32, Precision::kBf16}) {
    job_.training.mixed_precision = from;
    job_.training.steps = 20;
    const TrainingOutcome whole = TrainLayout(Single());
    job_.training.steps = 10;
    const TrainingOutcome first = TrainLayout(Single());
    ASSERT_EQ(first.committed.size(), 1);
    job_.training.steps = 20;
    job_.training.mixed_precision = from == Precision::kFp32 ? Precision::kBf16 : Precision::kFp32;
    const TrainingOutcome second = TrainLayout(Single(), first.committed.front());
    ASSERT_EQ(second.status(), absl::OkStatus());
    const std::vector<double> losses = whole.losses();
    EXPECT_LT(RelativeDifference(second.losses(), {losses.begin() + 10, losses.end()}), 0x1p-8);
  }
}

// A learning rate too small for bf16 weights to move still moves the master weights.
TEST_F(Bf16, KeepsSmallUpdates) {
  job_.optimizer.lr = 1e-6;
  job_.training.steps = 20;
  const TrainingOutcome outcome = TrainLayout(Single());
  job_.training.steps = 1;
  const TrainingOutcome before = TrainLayout(Single());
  // A norm's weights are all 1, and their neighbours in bf16 are 0.0039 away.
  EXPECT_NE(outcome.weights.at("final_norm.weight"), before.weights.at("final_norm.weight"));
}

class Fp16 : public Bf16Training {
 protected:
  Fp16() { job_.training.mixed_precision = Precision::kFp16; }
};

TEST_F(Fp16, TrainsNearFp32InAnyLayout) {
  const TrainingOutcome single = TrainLayout(Single());
  job_.training.mixed_precision = Precision::kFp32;
  const TrainingOutcome wide = TrainLayout(Single());
  job_.training.mixed_precision = Precision::kFp16;
  ASSERT_EQ(single.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(single.losses(), wide.losses()), 0x1p-11);
  for (const PrecisionCase& c :
       {PrecisionCase{"", 2, 1, 2, k1f1b, 1, 1}, {"", 1, 2, 1, k1f1b, 2}}) {
    const TrainingOutcome outcome = TrainLayout(LayoutOf(c, job_));
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
    EXPECT_LT(RelativeDifference(outcome.losses(), single.losses()), 0x1p-11);
    EXPECT_LT(RelativeDifference(outcome.grad_norms(), single.grad_norms()), 10 * 0x1p-11);
  }
}

// Gradients as they are vanish in fp16; those of the scaled loss do not.
TEST_F(Fp16, HasItsGradientsFromTheScaledLoss) {
  job_.training.steps = 1;
  const TrainingOutcome scaled = TrainLayout(Single());
  job_.training.mixed_precision = Precision::kFp32;
  const TrainingOutcome wide = TrainLayout(Single());
  job_.training.mixed_precision = Precision::kFp16;
  job_.fp16.loss_scale = 0x1p-8;
  const TrainingOutcome unscaled = TrainLayout(Single());
  EXPECT_LT(GradientDifference(scaled, wide), 5 * 0x1p-11);
  EXPECT_GT(GradientDifference(unscaled, wide), 0.1);
}

TEST_F(Fp16, LowersAScaleThatOverflowsAndGoesOnWithItAfterAResume) {
  job_.fp16.initial_scale_power = 32;
  job_.fp16.loss_scale_window = 4;
  job_.training.max_consecutive_skipped_steps = 1;
  const Layout layout = LayoutOf({"", 2, 2, 1, k1f1b, 1, 1}, job_);
  job_.training.steps = 40;
  const TrainingOutcome whole = TrainLayout(layout);
  ASSERT_EQ(whole.status(), absl::OkStatus());
  const std::vector<StepReport>& reports = whole.reports.front();
  EXPECT_TRUE(reports.front().skipped);
  EXPECT_EQ(reports.front().loss_scale, 0x1p32);
  EXPECT_EQ(reports[1].loss_scale, 0x1p32);  // hysteresis
  EXPECT_EQ(reports[2].loss_scale, 0x1p31);
  EXPECT_LT(reports.back().loss_scale, 0x1p31);
  EXPECT_LT(reports.back().loss, reports.front().loss);
  EXPECT_GT(reports.back().skipped_steps, 2);
  for (const std::vector<StepReport>& rank : whole.reports) EXPECT_EQ(Bits(rank), Bits(reports));
  job_.training.steps = 23;
  const TrainingOutcome first = TrainLayout(layout);
  ASSERT_EQ(first.committed.size(), 1);
  job_.training.steps = 40;
  const TrainingOutcome second = TrainLayout(layout, first.committed.front());
  EXPECT_EQ(second.weights, whole.weights);
  EXPECT_EQ(second.reports.front().back().loss_scale, reports.back().loss_scale);
}

// Every second weight gradient product counts twice.
class DoubledProducts : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
    if (transpose_a == Transpose::kYes && calls_++ % 2 == 0) {
      inner_.MatMul(a, transpose_a, b, transpose_b, 1, c);
    }
  }

 private:
  int calls_ = 0;
};

TEST_F(Bf16, ADoubledProductIsSeenByTheBoundOfTp) {
  job_.training.steps = 1;
  RankThreads run;
  run.assignment = {
      .job = job_, .layout = Single(), .run_folder = folder_.Make("run"), .load_checkpoint = ""};
  run.wrap_device = [](int, Device& inner) { return std::make_unique<DoubledProducts>(inner); };
  EXPECT_GT(GradientDifference(Train(run), TrainLayout(Single())), 5 * 0x1p-8);
}

}  // namespace
}  // namespace weft
