// A step whose loss or gradient norm is not finite changes nothing, on any rank, and is reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <string>

#include "tests/worker/passing_backend.h"
#include "tests/worker/rank_threads.h"
#include "worker/train/step_report.h"

namespace weft {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Planted { kNone, kLoss, kGradient };

// In the first microbatch of each of `steps`, the loss or the gradient is not a number.
class NotANumber : public PassingDevice {
 public:
  NotANumber(Device& inner, Planted where, std::set<int64_t> steps, int64_t microbatches)
      : PassingDevice(inner),
        where_(where),
        steps_(std::move(steps)),
        microbatches_(microbatches) {}

  void RowSumExp(View logits, View row_max, View targets, int64_t first_id, const LossTerms& loss,
                 View row_sum, View target_logit) override {
    inner_.RowSumExp(logits, row_max, targets, first_id, loss, row_sum, target_logit);
    if (where_ == Planted::kLoss && IsDue()) *static_cast<float*>(row_sum.data) = kNan;
  }
  void CrossEntropy(View targets, const LossTerms& loss, View logits, View row_max, View row_sum,
                    View target_logit) override {
    Device::CrossEntropy(targets, loss, logits, row_max, row_sum, target_logit);
  }
  void SoftmaxGradient(View row_max, View row_sum, View targets, int64_t first_id,
                       const LossTerms& loss, View logits) override {
    LossTerms given = loss;
    if (where_ == Planted::kGradient && IsDue()) given.scale = kNan;
    inner_.SoftmaxGradient(row_max, row_sum, targets, first_id, given, logits);
    ++passes_;
  }

 private:
  bool IsDue() const {
    return passes_ % microbatches_ == 0 && steps_.count(passes_ / microbatches_ + 1) > 0;
  }

  const Planted where_;
  const std::set<int64_t> steps_;
  const int64_t microbatches_;
  int64_t passes_ = 0;
};

class SkippedStep : public testing::Test {
 protected:
  SkippedStep() : job_(SmallJob(folder_.path())), layout_(MakeLayout(2, 2, 2, k1f1b, 1, job_)) {
    job_.training.steps = 4;
  }

  // One rank of eight, of the last stage, sees what is planted.
  TrainingOutcome TrainPlanted(Planted where, const std::set<int64_t>& steps,
                               const std::string& load_checkpoint = "") {
    const int seeing = layout_.grid().RankOf({.dp = 1, .pp = 1, .cp = 0, .tp = 1});
    RankThreads run;
    run_folder_ = folder_.Make("run" + std::to_string(runs_++));
    run.assignment = {.job = job_,
                      .layout = layout_,
                      .run_folder = run_folder_,
                      .load_checkpoint = load_checkpoint};
    run.wrap_device = [&](int rank, Device& inner) {
      return std::make_unique<NotANumber>(inner, rank == seeing ? where : Planted::kNone, steps,
                                          layout_.gradient_accumulation_steps);
    };
    return Train(run);
  }

  std::string Metrics() const {
    std::ifstream file(run_folder_ + "/metrics.jsonl");
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  const TestFolder folder_;
  JobSpec job_;
  Layout layout_;
  std::string run_folder_;
  int runs_ = 0;
};

TEST_F(SkippedStep, IsSkippedByAllRanksAlikeAndTrainingGoesOn) {
  for (const Planted where : {Planted::kLoss, Planted::kGradient}) {
    const TrainingOutcome outcome = TrainPlanted(where, {2});
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    for (const std::vector<StepReport>& reports : outcome.reports) {
      ASSERT_EQ(reports.size(), 4);
      for (const StepReport& report : reports) {
        EXPECT_EQ(report.skipped, report.step == 2);
        EXPECT_EQ(report.skipped_steps, report.step < 2 ? 0 : 1);
        EXPECT_EQ(std::isfinite(report.loss), report.step != 2 || where != Planted::kLoss);
        EXPECT_EQ(std::isfinite(report.grad_norm), report.step != 2);
      }
    }
    EXPECT_LT(outcome.losses().back(), outcome.losses().front());
    EXPECT_THAT(Metrics(), testing::HasSubstr("\"grad_norm\":null,\"grad_norm_hex\":"));
    EXPECT_THAT(Metrics(), testing::HasSubstr(",\"skipped\":true,\"skipped_steps\":1}\n"));
  }
}

TEST_F(SkippedStep, ChangesNoWeight) {
  job_.training.steps = 1;
  const TrainingOutcome before = TrainPlanted(Planted::kNone, {});
  job_.training.steps = 2;
  const TrainingOutcome after = TrainPlanted(Planted::kGradient, {2});
  ASSERT_EQ(before.status(), absl::OkStatus());
  ASSERT_EQ(after.status(), absl::OkStatus());
  EXPECT_EQ(after.weights, before.weights);
  // The comparison is not blind: a step that counts changes them.
  const TrainingOutcome trained = TrainPlanted(Planted::kNone, {});
  EXPECT_NE(trained.weights, before.weights);
}

// The moments' bias correction counts updates: had the first step not been, nobody could tell.
TEST_F(SkippedStep, IsNoStepOfTheOptimizer) {
  job_.training.steps = 2;
  const TrainingOutcome skipped_first = TrainPlanted(Planted::kGradient, {1});
  ASSERT_EQ(skipped_first.status(), absl::OkStatus());
  job_.training.steps = 1;
  const TrainingOutcome first = TrainPlanted(Planted::kNone, {});
  ASSERT_EQ(first.status(), absl::OkStatus());
  // AdamW's first update has the length of the learning rate wherever there is a gradient; as a
  // second one it would be half of that.
  const auto largest_change = [&](const TrainingOutcome& outcome) {
    double largest = 0;
    for (const float value : outcome.weights.at("blocks.0.attn.o.bias")) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
    return largest;
  };
  EXPECT_NEAR(largest_change(skipped_first) / largest_change(first), 1, 0.01);
}

TEST_F(SkippedStep, EndsTheRunAfterSoManyInARow) {
  job_.training.max_consecutive_skipped_steps = 2;
  job_.checkpoint.interval = 1;
  const TrainingOutcome outcome = TrainPlanted(Planted::kGradient, {2, 3});
  for (const absl::Status& status : outcome.statuses) {  // nobody was ended by the first that left
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(testing::HasSubstr("gradient norm of step 3 is nan"),
                               testing::HasSubstr("optimizer.lr")));
  }
  EXPECT_EQ(outcome.committed.size(), 2);  // of steps 1 and 2; the end is not saved
  EXPECT_THAT(Metrics(), testing::HasSubstr("\"skipped_steps\":2"));
}

TEST_F(SkippedStep, IsCountedOnByWhoResumes) {
  const TrainingOutcome whole = TrainPlanted(Planted::kGradient, {1});
  job_.training.steps = 2;
  const TrainingOutcome first = TrainPlanted(Planted::kGradient, {1});
  ASSERT_EQ(first.committed.size(), 1);
  job_.training.steps = 4;
  const TrainingOutcome second = TrainPlanted(Planted::kNone, {}, first.committed.front());
  ASSERT_EQ(second.status(), absl::OkStatus());
  EXPECT_EQ(second.reports.front().back().skipped_steps, 1);
  EXPECT_EQ(second.weights, whole.weights);
}

}  // namespace
}  // namespace weft
