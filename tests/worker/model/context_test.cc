// Context parallelism: ranks that hold two runs of each sequence train what one rank trains, with
// whole and with packed documents.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct ContextCase {
  int dp, cp, tp, pp;
  ScheduleKind schedule = k1f1b;
  int virtual_stages = 1;
  Recompute recompute = Recompute::kNone;
};
Layout LayoutOf(const ContextCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, 2, job);
  layout.cp = c.cp;
  layout.virtual_stages = c.virtual_stages;
  layout.recompute = c.recompute;
  return layout;
}
void PrintTo(const ContextCase& c, std::ostream* out) {
  JobSpec job;
  job.training.global_batch_size = 8;  // SmallJob's
  *out << LayoutText(LayoutOf(c, job));
}

JobSpec GptJob(const std::string& folder) {
  JobSpec job = SmallJob(folder);
  job.training.steps = 6;
  return job;
}

JobSpec LlamaJob(const std::string& folder) {
  JobSpec job = GptJob(folder);
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = 1;  // fewer than tp
  job.model.ffn_size = 96;
  job.model.tied_embeddings = false;
  return job;
}

// Documents of a word each: many end within a run.
JobSpec Packed(JobSpec job) {
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.data.reset_position_ids = true;
  return job;
}

void ExpectTrainsAsASingleRank(const JobSpec& job, const Layout& layout, const TestFolder& folder) {
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 8, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  ASSERT_LT(single.losses().back(), single.losses().front() - 0.3) << "would prove little";
  const TrainingOutcome spread = TrainWith(job, layout, folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
  EXPECT_LT(RelativeDifference(spread.grad_norms(), single.grad_norms()), 1e-5);
  EXPECT_EQ(spread.allocated_bytes, spread.planned_bytes);
  JobSpec one_step = job;
  one_step.training.steps = 1;
  EXPECT_LT(GradientDifference(
                TrainWith(one_step, layout, folder.Make("spread1")),
                TrainWith(one_step, MakeLayout(1, 1, 1, k1f1b, 8, job), folder.Make("single1"))),
            2e-6);
}

class ContextParallel : public testing::TestWithParam<ContextCase> {};

TEST_P(ContextParallel, TrainsGpt2AsASingleRank) {
  const TestFolder folder;
  const JobSpec job = GptJob(folder.path());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job), folder);
}

TEST_P(ContextParallel, TrainsPackedDocumentsOfLlamaAsASingleRank) {
  const TestFolder folder;
  const JobSpec job = Packed(LlamaJob(folder.path()));
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job), folder);
}

INSTANTIATE_TEST_SUITE_P(Trainer, ContextParallel,
                         testing::Values(ContextCase{1, 2, 1, 1}, ContextCase{1, 4, 1, 1},
                                         ContextCase{1, 2, 2, 1}, ContextCase{2, 2, 1, 2},
                                         ContextCase{1, 2, 1, 2, ScheduleKind::kZeroBubbleH1},
                                         ContextCase{1, 2, 1, 2, ScheduleKind::kInterleaved, 2},
                                         ContextCase{1, 2, 1, 1, k1f1b, 1, Recompute::kFull},
                                         ContextCase{1, 2, 1, 2, k1f1b, 1, Recompute::kSelective}));

TEST(ContextParallel, TrainsLlamaAndPackedGpt2AsASingleRank) {
  const TestFolder folder, packed_folder;
  const JobSpec llama = LlamaJob(folder.path());
  ExpectTrainsAsASingleRank(llama, LayoutOf({1, 2, 2, 1}, llama), folder);
  const JobSpec packed = Packed(GptJob(packed_folder.path()));
  ExpectTrainsAsASingleRank(packed, LayoutOf({2, 2, 1, 1}, packed), packed_folder);
}

// Attention in 16 bits has copies of one head's queries here and of its keys everywhere.
TEST(ContextParallel, TrainsInBf16InThePlannedMemory) {
  const TestFolder folder;
  JobSpec job = LlamaJob(folder.path());
  job.training.mixed_precision = Precision::kBf16;
  for (const ContextCase& c : {ContextCase{1, 2, 1, 1}, ContextCase{1, 4, 2, 1}}) {
    const TrainingOutcome outcome =
        TrainWith(job, LayoutOf(c, job), folder.Make(absl::StrCat("cp", c.cp)));
    ASSERT_EQ(outcome.status(), absl::OkStatus());
    EXPECT_EQ(outcome.allocated_bytes, outcome.planned_bytes);
    EXPECT_LT(outcome.losses().back(), outcome.losses().front());
  }
}

TEST(ContextParallel, SavesWhatAnyLayoutLoads) {
  const TestFolder folder;
  JobSpec job = GptJob(folder.path());
  job.lr_scheduler.decay_steps = 6;
  const Layout layout = LayoutOf({2, 2, 1, 1}, job);
  const TrainingOutcome whole = TrainWith(job, layout, folder.Make("whole"));
  ASSERT_EQ(whole.status(), absl::OkStatus());
  job.training.steps = 3;
  const TrainingOutcome half = TrainWith(job, layout, folder.Make("half"));
  ASSERT_EQ(half.committed.size(), 1U);
  job.training.steps = 6;
  const TrainingOutcome rest = TrainWith(job, MakeLayout(1, 2, 1, k1f1b, 4, job),
                                         folder.Make("rest"), half.committed.back());
  ASSERT_EQ(rest.status(), absl::OkStatus());
  EXPECT_NEAR(rest.losses().back(), whole.losses().back(), 1e-6 * whole.losses().back());
}

TEST(ContextParallel, ValidatesAsASingleRank) {
  const TestFolder folder;
  JobSpec job = GptJob(folder.path());
  job.validation = {.interval = 3, .steps = 2};
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 8, job), folder.Make("single"));
  const TrainingOutcome spread = TrainWith(job, LayoutOf({1, 4, 1, 2}, job), folder.Make("spread"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  ASSERT_EQ(spread.status(), absl::OkStatus());
  const double expected = single.reports[0][5].valid_loss.value();
  EXPECT_NEAR(spread.reports[0][5].valid_loss.value(), expected, 1e-6 * expected);
}

}  // namespace
}  // namespace weft
