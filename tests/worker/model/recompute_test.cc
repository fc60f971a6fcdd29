// Recomputing activations changes memory and time, nothing else: not a bit of any number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "plan/spec/layout_text.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct RecomputeCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int virtual_stages = 1;
  std::vector<int64_t> layers_per_stage = {};
};

Layout LayoutOf(const RecomputeCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job);
  layout.virtual_stages = c.virtual_stages;
  layout.layers_per_stage = c.layers_per_stage;
  return layout;
}

void PrintTo(const RecomputeCase& c, std::ostream* out) {
  JobSpec job;
  job.training.global_batch_size = 8;  // SmallJob's
  *out << LayoutText(LayoutOf(c, job));
}

class AnyLayoutThatRecomputes : public testing::TestWithParam<RecomputeCase> {};

// `layout` with every mode everywhere, and with another one on each stage.
std::vector<Layout> Recomputing(Layout layout) {
  std::vector<Layout> layouts;
  for (const Recompute recompute : {Recompute::kSelective, Recompute::kFull}) {
    layout.recompute = recompute;
    layouts.push_back(layout);
  }
  layout.recompute = Recompute::kNone;
  for (int stage = 0; stage < layout.pp; ++stage) {
    layout.recompute_per_stage.push_back(static_cast<Recompute>(2 - stage % 3));
  }
  if (layout.pp > 1) layouts.push_back(layout);
  return layouts;
}

TEST_P(AnyLayoutThatRecomputes, GivesTheBitsOfOneThatDoesNotInLessMemory) {
  const TestFolder folder;
  for (JobSpec job : {SmallJob(folder.path()), SmallLlamaJob(folder.path())}) {
    job.training.steps = 5;
    job.validation = {.interval = 2, .steps = 1};
    job.data.split = 0.2;
    const Layout layout = LayoutOf(GetParam(), job);
    const std::string name(WordOf(job.model.architecture));
    const TrainingOutcome keeps = TrainWith(job, layout, folder.Make(name));
    ASSERT_EQ(keeps.status(), absl::OkStatus());
    for (const Layout& other : Recomputing(layout)) {
      const TrainingOutcome makes = TrainWith(job, other, folder.Make(name + LayoutText(other)));
      ASSERT_EQ(makes.status(), absl::OkStatus());
      EXPECT_EQ(Bits(makes.reports.front()), Bits(keeps.reports.front())) << LayoutText(other);
      EXPECT_EQ(makes.reports.front()[1].valid_loss, keeps.reports.front()[1].valid_loss);
      EXPECT_EQ(makes.gradients, keeps.gradients) << LayoutText(other);
      EXPECT_EQ(makes.weights, keeps.weights) << LayoutText(other);
      EXPECT_EQ(makes.allocated_bytes, makes.planned_bytes);
      EXPECT_LT(makes.planned_bytes.front(), keeps.planned_bytes.front()) << LayoutText(other);
      for (size_t rank = 0; rank < keeps.planned_bytes.size(); ++rank) {
        EXPECT_LE(makes.planned_bytes[rank], keeps.planned_bytes[rank]) << LayoutText(other);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Trainer, AnyLayoutThatRecomputes,
                         testing::Values(RecomputeCase{1, 1, 1, kGpipe, 2},
                                         RecomputeCase{1, 2, 1, k1f1b, 4},
                                         RecomputeCase{1, 1, 4, k1f1b, 1},
                                         RecomputeCase{2, 2, 2, k1f1b, 1},
                                         RecomputeCase{1, 2, 2, kInterleaved, 2, 2},
                                         RecomputeCase{2, 1, 2, kZeroBubble, 1},
                                         RecomputeCase{1, 2, 3, kZeroBubble, 1, 1, {1, 2, 1}},
                                         RecomputeCase{1, 2, 3, kGpipe, 2, 1, {2, 1, 1}}));

}  // namespace
}  // namespace weft
