#include "worker/train/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "plan/block/tensors.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/train/step_report.h"

namespace weft {
namespace {

struct LayoutCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int virtual_stages = 1;
  std::vector<int64_t> layers_per_stage = {};
};
Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job);
  layout.virtual_stages = c.virtual_stages;
  layout.layers_per_stage = c.layers_per_stage;
  return layout;
}
void PrintTo(const LayoutCase& c, std::ostream* out) {
  JobSpec job;
  job.training.global_batch_size = 8;  // SmallJob's
  *out << LayoutText(LayoutOf(c, job));
}

class AnyLayout : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyLayout, TrainsTheSameModelAsASingleRank) {
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  const JobSpec job = SmallJob(folder.path());
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  ASSERT_LT(single.losses().back(), single.losses().front() - 1) << "the test would prove little";
  const TrainingOutcome spread = TrainWith(job, LayoutOf(c, job), folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
  EXPECT_LT(RelativeDifference(spread.grad_norms(), single.grad_norms()), 1e-5);
  for (const auto& reports : spread.reports) {
    EXPECT_EQ(Bits(reports), Bits(spread.reports.front())) << "all ranks report the same";
  }
}

TEST_P(AnyLayout, HasTheSameFirstGradientsAsASingleRank) {
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
  const TrainingOutcome spread = TrainWith(job, LayoutOf(c, job), folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  ASSERT_EQ(single.gradients.size(), Tensors(job.model).size());
  EXPECT_LT(GradientDifference(spread, single), 2e-6);
}

TEST_P(AnyLayout, AllocatesExactlyWhatIsPlanned) {
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  const TrainingOutcome outcome = TrainWith(job, LayoutOf(c, job), folder.Make("run"));
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_GT(outcome.planned_bytes.front(), 0);
  EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Trainer, AnyLayout,
    testing::Values(
        LayoutCase{1, 1, 1, kGpipe, 8}, LayoutCase{2, 1, 1, k1f1b, 2},
        LayoutCase{1, 2, 1, k1f1b, 2}, LayoutCase{1, 4, 1, k1f1b, 4},
        LayoutCase{1, 1, 2, kGpipe, 2}, LayoutCase{1, 1, 2, k1f1b, 2},
        LayoutCase{1, 1, 4, k1f1b, 1}, LayoutCase{1, 1, 4, kGpipe, 1},
        LayoutCase{2, 1, 2, k1f1b, 2}, LayoutCase{1, 2, 2, k1f1b, 2}, LayoutCase{2, 2, 2, k1f1b, 1},
        LayoutCase{2, 2, 2, kGpipe, 2}, LayoutCase{1, 1, 2, kInterleaved, 1, 2},
        LayoutCase{2, 1, 2, kInterleaved, 2, 2}, LayoutCase{2, 2, 2, kInterleaved, 1, 2},
        LayoutCase{1, 1, 2, kZeroBubble, 1}, LayoutCase{1, 1, 4, kZeroBubble, 1},
        LayoutCase{1, 1, 4, kZeroBubble, 4}, LayoutCase{2, 2, 2, kZeroBubble, 1},
        LayoutCase{1, 1, 2, kZeroBubble, 2, 1, {3, 1}}, LayoutCase{1, 1, 2, k1f1b, 2, 1, {1, 3}},
        LayoutCase{1, 1, 2, kGpipe, 1, 1, {3, 1}}, LayoutCase{1, 2, 3, k1f1b, 2, 1, {1, 2, 1}}));

// The leg without AdamW and clipping, which hide a gradient's scale.
TEST(Trainer, KeepsTheScaleOfGradientsWithSgdAndNoClipping) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.optimizer.name = OptimizerKind::kSgd;
  job.optimizer.lr = 0.1;
  job.training.gradient_clipping = 0;
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 8, job), folder.Make("single"));
  const TrainingOutcome spread =
      TrainWith(job, MakeLayout(2, 2, 2, k1f1b, 2, job), folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  ASSERT_LT(single.losses().back(), single.losses().front() - 0.5);
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
}

TEST(Trainer, TrainsAnUntiedHeadAndAVocabularyThatDoesNotDivide) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.model.tied_embeddings = false;
  job.model.vocab_size = 259;
  job.training.steps = 5;
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  EXPECT_EQ(single.weights.count("head.weight"), 1U);
  for (const Layout& layout :
       {MakeLayout(1, 2, 2, k1f1b, 2, job), MakeLayout(2, 4, 1, k1f1b, 2, job)}) {
    const TrainingOutcome spread = TrainWith(job, layout, folder.Make(LayoutText(layout)));
    ASSERT_EQ(spread.status(), absl::OkStatus());
    EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6) << LayoutText(layout);
  }
}

TEST(Trainer, GivesTheSameBitsWhenRunTwice) {
  const TestFolder folder;
  const JobSpec job = SmallJob(folder.path());
  const Layout layout = MakeLayout(2, 2, 2, k1f1b, 1, job);
  const TrainingOutcome first = TrainWith(job, layout, folder.Make("first"));
  const TrainingOutcome second = TrainWith(job, layout, folder.Make("second"));
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(Bits(first.reports.front()), Bits(second.reports.front()));
  EXPECT_EQ(first.weights, second.weights);
}

TEST(Trainer, ValidatesTheSameInEveryLayoutAndLeavesTrainingAlone) {
  for (const LayoutCase& c :
       {LayoutCase{2, 2, 2, k1f1b, 1}, LayoutCase{2, 1, 2, kInterleaved, 2, 2},
        LayoutCase{1, 1, 2, kZeroBubble, 2, 1, {3, 1}}}) {
    const TestFolder folder;
    JobSpec job = SmallJob(folder.path());
    job.training.steps = 6;
    const Layout spread_layout = LayoutOf(c, job);
    SCOPED_TRACE(LayoutText(spread_layout));
    const TrainingOutcome without = TrainWith(job, spread_layout, folder.Make("without"));
    job.validation = {.interval = 3, .steps = 2};
    const TrainingOutcome single =
        TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
    const TrainingOutcome spread = TrainWith(job, spread_layout, folder.Make("spread"));
    ASSERT_EQ(single.status(), absl::OkStatus());
    ASSERT_EQ(spread.status(), absl::OkStatus());
    EXPECT_EQ(Bits(spread.reports.front()), Bits(without.reports.front()));
    for (const auto& reports : spread.reports) {
      for (const StepReport& report : reports) {
        const StepReport& expected = single.reports.front()[static_cast<size_t>(report.step - 1)];
        ASSERT_EQ(report.valid_loss.has_value(), report.step % 3 == 0);
        ASSERT_EQ(expected.valid_loss.has_value(), report.step % 3 == 0);
        if (!report.valid_loss) continue;
        EXPECT_NEAR(*report.valid_loss, *expected.valid_loss, 1e-6 * *expected.valid_loss);
        EXPECT_NEAR(*report.valid_loss, report.loss, 0.5) << "text of the same kind";
        EXPECT_NE(*report.valid_loss, report.loss);
      }
    }
  }
}

TEST(Trainer, StopsAllRanksAtOneStepWhenAnyIsAsked) {
  const TestFolder folder;
  const JobSpec job = SmallJob(folder.path());
  RankThreads run;
  run.assignment = {.job = job,
                    .layout = MakeLayout(2, 1, 2, k1f1b, 2, job),
                    .run_folder = folder.Make("run"),
                    .load_checkpoint = ""};
  run.stop_requested = [](int rank, int64_t step) { return rank == 2 && step >= 7; };
  const TrainingOutcome outcome = Train(run);
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(outcome.results[rank].step, 7);
    EXPECT_TRUE(outcome.results[rank].stopped);
    EXPECT_TRUE(outcome.reports[rank].back().stopping);
  }
  EXPECT_THAT(outcome.committed, testing::ElementsAre(folder.path() + "/run/checkpoint/step-7"));
}

TEST(Trainer, AppendsALineOfMetricsPerStep) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 3;
  const TrainingOutcome outcome =
      TrainWith(job, MakeLayout(1, 1, 2, k1f1b, 2, job), folder.Make("run"));
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  std::ifstream file(folder.path() + "/run/metrics.jsonl");
  int64_t step = 0;
  for (std::string line; std::getline(file, line);) {
    EXPECT_THAT(line, testing::StartsWith(absl::StrCat("{\"step\":", ++step, ",")));
  }
  EXPECT_EQ(step, 3);
}

// The first update ruins the weights: no later step is finite, and all ranks end.
TEST(Trainer, EndsWhenTheLossIsNotFinite) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.optimizer.lr = 1e30;
  const TrainingOutcome outcome =
      TrainWith(job, MakeLayout(2, 2, 2, k1f1b, 1, job), folder.Make("run"));
  // All learn it from one reduction; who does first ends the others, some perhaps within it.
  int named = 0;
  for (const absl::Status& status : outcome.statuses) {
    const std::string message(status.message());
    if (absl::IsAborted(status)) continue;
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(message, testing::AllOf(testing::HasSubstr("step 6 is nan"),
                                        testing::HasSubstr("optimizer.lr"),
                                        testing::HasSubstr("5 steps in a row were skipped")));
    ++named;
  }
  EXPECT_GE(named, 1);
  EXPECT_TRUE(outcome.committed.empty());
}

TEST(Trainer, RefusesByNameWhatItCannotTrain) {
  const TestFolder folder;
  const JobSpec job = SmallJob(folder.path());
  Layout layout = MakeLayout(2, 1, 2, k1f1b, 2, job);
  layout.zero_stage = 4;
  const TrainingOutcome outcome = TrainWith(job, layout, folder.Make("run"));
  EXPECT_EQ(outcome.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(outcome.status().message()),
              testing::HasSubstr("parallelism.zero_stage: 4"));
}

// --- The tests above have to see these.

// Every weight gradient (the only product with both of these transposes) counts twice.
class DoubledGradient : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
    if (transpose_a == Transpose::kYes) inner_.MatMul(a, transpose_a, b, transpose_b, 1, c);
  }
};

// Every second microbatch counts 0.1 % more.
class WrongWeight : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max, View row_sum,
                    View target_logit) override {
    Device::CrossEntropy(targets, loss, logits, row_max, row_sum, target_logit);
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    const double weight = ++calls_ % 2 == 0 ? 1.001 : 1;
    LossTerms weighted = loss;
    weighted.scale *= weight;
    inner_.SoftmaxGradient(row_max, row_sum, targets, first_id, weighted, logits);
  }

 private:
  int calls_ = 0;
};

// The second microbatch is left out of one weight's gradient.
class SkippedWeightGradient : public PassingDevice {
 public:
  using PassingDevice::PassingDevice;
  void MatMul(View a, Transpose transpose_a, View b, Transpose transpose_b, float beta,
              View c) override {
    if (transpose_a == Transpose::kYes) {
      if (skipped_ == nullptr) skipped_ = c.data;
      if (c.data == skipped_ && ++calls_ == 2) return;
    }
    inner_.MatMul(a, transpose_a, b, transpose_b, beta, c);
  }

 private:
  const void* skipped_ = nullptr;
  int calls_ = 0;
};

// Mixes up what a stage received for its first two passes through a chunk, as if one had come into
// the other's slot.
class MixedUpSlots : public PassingComm {
 public:
  using PassingComm::PassingComm;
  BackendStatus Exchange(const Transfer* transfers, int count) override {
    const BackendStatus status = inner_.Exchange(transfers, count);
    for (int i = 0; i < count; ++i) {
      if (transfers[i].send || ++receives_ > 2) continue;
      auto* values = static_cast<float*>(transfers[i].data.data);
      std::vector<float> now(values, values + transfers[i].data.elements());
      if (receives_ == 2) std::copy(first_.begin(), first_.end(), values);
      first_ = std::move(now);
    }
    return status;
  }

 private:
  int receives_ = 0;
  std::vector<float> first_;
};

// Leaves out the reductions over the group of the given round of NewGroup calls: 0 tp, 1 dp, 2
// the tied copies, 3 the world.
class MissingReduction : public AtOnceComm {
 public:
  MissingReduction(Comm& inner, int round) : AtOnceComm(inner), round_(round) {}

  BackendStatus NewGroup(GroupUse use, const int* ranks, int count, int* group) override {
    const BackendStatus status = inner_.NewGroup(use, ranks, count, group);
    if (rounds_++ == round_) group_ = *group;
    return status;
  }
  BackendStatus AllReduce(int group, ReduceOp op, View data) override {
    return group == group_ ? BackendStatus{} : inner_.AllReduce(group, op, data);
  }

 private:
  const int round_;
  int rounds_ = 0;
  int group_ = -1;
};

class PlantedBug : public testing::Test {
 protected:
  PlantedBug() {
    job_.training.steps = 1;
    run_.assignment = {.job = job_,
                       .layout = MakeLayout(2, 2, 2, k1f1b, 1, job_),
                       .run_folder = folder_.Make("bug"),
                       .load_checkpoint = ""};
  }

  // By how much the run with the bug misses the single rank's, in units of what is tolerated.
  struct Miss {
    double losses, grad_norms, gradients;
  };
  Miss MissOf() {
    const TrainingOutcome single =
        TrainWith(job_, MakeLayout(1, 1, 1, k1f1b, 2, job_), folder_.Make("single"));
    const TrainingOutcome bug = Train(run_);
    EXPECT_EQ(bug.status(), absl::OkStatus());
    return {RelativeDifference(bug.losses(), single.losses()) / 1e-6,
            RelativeDifference(bug.grad_norms(), single.grad_norms()) / 1e-5,
            GradientDifference(bug, single) / 2e-6};
  }

  void LeaveOutReduction(int round) {
    run_.wrap_comm = [round](int, Comm& inner) {
      return std::make_unique<MissingReduction>(inner, round);
    };
  }

  const TestFolder folder_;
  JobSpec job_ = SmallJob(folder_.path());
  RankThreads run_;
};

TEST_F(PlantedBug, NoneIsSeenWhereThereIsNone) {
  const Miss miss = MissOf();
  EXPECT_LT(miss.losses, 1);
  EXPECT_LT(miss.grad_norms, 1);
  EXPECT_LT(miss.gradients, 1);
}

TEST_F(PlantedBug, ADoubledGradientIsSeen) {
  run_.wrap_device = [](int, Device& inner) { return std::make_unique<DoubledGradient>(inner); };
  const Miss miss = MissOf();
  EXPECT_GT(miss.grad_norms, 100);
  EXPECT_GT(miss.gradients, 100);
}

TEST_F(PlantedBug, AMicrobatchWithAWrongWeightIsSeen) {
  run_.wrap_device = [](int, Device& inner) { return std::make_unique<WrongWeight>(inner); };
  EXPECT_GT(MissOf().gradients, 10);
}

TEST_F(PlantedBug, AMicrobatchLeftOutOfAWeightGradientIsSeen) {
  run_.assignment.layout = LayoutOf({1, 1, 2, kZeroBubble, 1}, job_);
  EXPECT_LT(MissOf().gradients, 1);
  run_.wrap_device = [](int, Device& inner) {
    return std::make_unique<SkippedWeightGradient>(inner);
  };
  EXPECT_GT(MissOf().gradients, 100);
}

TEST_F(PlantedBug, AMicrobatchInTheSlotOfAnotherIsSeen) {
  run_.assignment.layout = LayoutOf({1, 1, 2, kInterleaved, 1, 2}, job_);
  EXPECT_LT(MissOf().gradients, 1);
  run_.wrap_comm = [](int, Comm& inner) { return std::make_unique<MixedUpSlots>(inner); };
  EXPECT_GT(MissOf().gradients, 100);
}

TEST_F(PlantedBug, AMissingSumOverTensorRanksIsSeen) {
  LeaveOutReduction(0);
  EXPECT_GT(MissOf().losses, 100);
}

TEST_F(PlantedBug, AMissingSumOverDataRanksIsSeen) {
  LeaveOutReduction(1);
  EXPECT_GT(MissOf().gradients, 100);
}

TEST_F(PlantedBug, ATiedEmbeddingThatIsNotReducedIsSeen) {
  LeaveOutReduction(2);
  EXPECT_GT(MissOf().gradients, 100);
}

TEST_F(PlantedBug, ANormThatIsNotReducedIsSeen) {
  LeaveOutReduction(3);
  EXPECT_GT(MissOf().grad_norms, 100);
}

TEST(Validation, ComesAtItsIntervalAndAfterTheLastStep) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.data.split = 0.2;
  job.training.steps = 5;
  job.validation = {.interval = 2, .steps = 1};
  const TrainingOutcome outcome =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 4, job), folder.Make("run"));
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  std::vector<int64_t> steps;
  for (const StepReport& report : outcome.reports.front()) {
    if (report.valid_loss.has_value()) steps.push_back(report.step);
  }
  EXPECT_THAT(steps, testing::ElementsAre(2, 4, 5));
}

}  // namespace
}  // namespace weft
