#include "worker/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

constexpr ScheduleKind kGpipe = ScheduleKind::kGpipe;
constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;

TrainingOutcome TrainWith(const JobSpec& job, const Layout& layout, const std::string& run_folder,
                          const std::string& load = "") {
  RankThreads run;
  run.assignment = {
      .job = job, .layout = layout, .run_folder = run_folder, .load_checkpoint = load};
  return Train(run);
}

// Largest |a - b| / |b|.
double RelativeDifference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(a[i] - b[i]) / std::abs(b[i]));
  }
  return worst;
}

double Norm(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += double{value} * value;
  return std::sqrt(sum);
}

// Worst tensor of ||a - b|| / max(||b||, 1e-3 ||B||), B all tensors: a gradient that is zero in
// truth (the key bias) is judged against all of them.
double GradientDifference(const TrainingOutcome& a, const TrainingOutcome& b) {
  if (a.gradients.size() != b.gradients.size()) return std::numeric_limits<double>::infinity();
  double all = 0;
  for (const auto& [name, values] : b.gradients) all = std::hypot(all, Norm(values));
  double worst = 0;
  for (const auto& [name, values] : b.gradients) {
    std::vector<float> difference = a.gradients.at(name);
    for (size_t i = 0; i < values.size(); ++i) difference[i] -= values[i];
    worst = std::max(worst, Norm(difference) / std::max(Norm(values), 1e-3 * all));
  }
  return worst;
}

// Loss, norm and learning rate of each step as bits; time is no part of it.
std::vector<std::string> Bits(const std::vector<StepReport>& reports) {
  std::vector<std::string> lines;
  for (const StepReport& report : reports) {
    char line[128];
    std::snprintf(line, sizeof(line), "%lld %a %a %a", static_cast<long long>(report.step),
                  report.loss, report.grad_norm, report.lr);
    lines.emplace_back(line);
  }
  return lines;
}

struct LayoutCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
};
void PrintTo(const LayoutCase& c, std::ostream* out) {
  *out << "dp" << c.dp << " tp" << c.tp << " pp" << c.pp << " " << ScheduleName(c.schedule).data()
       << " micro_batch " << c.micro_batch_size;
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
  const TrainingOutcome spread =
      TrainWith(job, MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job),
                folder.Make("spread"));
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
  const TrainingOutcome spread =
      TrainWith(job, MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job),
                folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  ASSERT_EQ(single.gradients.size(), Tensors(job.model).size());
  EXPECT_LT(GradientDifference(spread, single), 2e-6);
}

TEST_P(AnyLayout, AllocatesExactlyWhatIsPlanned) {
  const LayoutCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  const TrainingOutcome outcome = TrainWith(
      job, MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job), folder.Make("run"));
  ASSERT_EQ(outcome.status(), absl::OkStatus());
  EXPECT_GT(outcome.planned_bytes.front(), 0);
  EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
}

INSTANTIATE_TEST_SUITE_P(
    Trainer, AnyLayout,
    testing::Values(LayoutCase{1, 1, 1, kGpipe, 8}, LayoutCase{2, 1, 1, k1f1b, 2},
                    LayoutCase{1, 2, 1, k1f1b, 2}, LayoutCase{1, 4, 1, k1f1b, 4},
                    LayoutCase{1, 1, 2, kGpipe, 2}, LayoutCase{1, 1, 2, k1f1b, 2},
                    LayoutCase{1, 1, 4, k1f1b, 1}, LayoutCase{1, 1, 4, kGpipe, 1},
                    LayoutCase{2, 1, 2, k1f1b, 2}, LayoutCase{1, 2, 2, k1f1b, 2},
                    LayoutCase{2, 2, 2, k1f1b, 1}, LayoutCase{2, 2, 2, kGpipe, 2}));

}  // namespace
}  // namespace weft
