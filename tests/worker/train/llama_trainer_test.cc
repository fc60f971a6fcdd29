// The llama family under every axis, ranks as threads: what trainer_test.cc holds for gpt2.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "plan/block/tensors.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

// Heads of 24 that are not D / H, two query heads to a kv head, positions stretched within the
// sequence, biases in attention, a head of its own.
JobSpec LlamaJob(const std::string& folder, int64_t kv_heads) {
  JobSpec job = SmallJob(folder);
  job.model = {.architecture = Architecture::kLlama,
               .vocab_size = 259,
               .hidden_size = 64,
               .num_blocks = 4,
               .num_heads = 4,
               .num_kv_heads = kv_heads,
               .head_dim = 24,
               .ffn_size = 176,
               .max_positions = 48,
               .norm_eps = 1e-6,
               .tied_embeddings = false,
               .rope_scaling = {.factor = 4, .original_max_positions = 16},
               .attention_bias = true};
  return job;
}

struct LlamaCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int64_t kv_heads;
};
void PrintTo(const LlamaCase& c, std::ostream* out) {
  *out << "dp" << c.dp << " tp" << c.tp << " pp" << c.pp << " " << WordOf(c.schedule).data()
       << " micro_batch " << c.micro_batch_size << " kv_heads " << c.kv_heads;
}

class AnyLayoutOfLlama : public testing::TestWithParam<LlamaCase> {};

TEST_P(AnyLayoutOfLlama, TrainsTheSameModelInThePlannedMemory) {
  const LlamaCase& c = GetParam();
  const TestFolder folder;
  const JobSpec job = LlamaJob(folder.path(), c.kv_heads);
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
  EXPECT_GT(spread.planned_bytes.front(), 0);
  EXPECT_EQ(spread.allocated_bytes, spread.planned_bytes);
}

TEST_P(AnyLayoutOfLlama, HasTheSameFirstGradientsAsASingleRank) {
  const LlamaCase& c = GetParam();
  const TestFolder folder;
  JobSpec job = LlamaJob(folder.path(), c.kv_heads);
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

INSTANTIATE_TEST_SUITE_P(
    Trainer, AnyLayoutOfLlama,
    testing::Values(LlamaCase{1, 1, 1, kGpipe, 8, 1}, LlamaCase{2, 1, 1, k1f1b, 2, 2},
                    LlamaCase{1, 2, 1, k1f1b, 2, 2}, LlamaCase{1, 4, 1, k1f1b, 4, 4},
                    LlamaCase{1, 1, 2, k1f1b, 2, 2}, LlamaCase{1, 1, 4, kGpipe, 1, 1},
                    LlamaCase{2, 1, 2, k1f1b, 2, 1}, LlamaCase{1, 2, 2, k1f1b, 2, 2},
                    LlamaCase{2, 2, 2, k1f1b, 1, 2}, LlamaCase{2, 2, 2, kGpipe, 2, 4},
                    // Fewer kv heads than tp ranks: neighbours share them.
                    LlamaCase{1, 2, 1, k1f1b, 2, 1}, LlamaCase{1, 4, 1, k1f1b, 4, 2},
                    LlamaCase{2, 4, 1, k1f1b, 1, 1}, LlamaCase{1, 4, 2, k1f1b, 2, 2}));

TEST(LlamaTrainer, TrainsATiedHeadAcrossStages) {
  const TestFolder folder;
  JobSpec job = LlamaJob(folder.path(), 2);
  job.model.tied_embeddings = true;
  job.model.attention_bias = false;
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  EXPECT_EQ(single.weights.count("head.weight"), 0U);
  EXPECT_EQ(single.weights.count("blocks.0.attn.k.bias"), 0U);
  const TrainingOutcome spread =
      TrainWith(job, MakeLayout(2, 2, 2, k1f1b, 1, job), folder.Make("spread"));
  ASSERT_EQ(spread.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6);
}

TEST(LlamaTrainer, TrainsUnderEverySchedule) {
  const TestFolder folder;
  const JobSpec job = LlamaJob(folder.path(), 1);
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  Layout interleaved = MakeLayout(1, 2, 2, ScheduleKind::kInterleaved, 2, job);
  interleaved.virtual_stages = 2;
  Layout uneven = MakeLayout(1, 2, 2, ScheduleKind::kZeroBubbleH1, 2, job);
  uneven.layers_per_stage = {3, 1};
  for (const Layout& layout : {interleaved, uneven}) {
    const TrainingOutcome spread = TrainWith(job, layout, folder.Make(LayoutText(layout)));
    ASSERT_EQ(spread.status(), absl::OkStatus()) << LayoutText(layout);
    EXPECT_LT(RelativeDifference(spread.losses(), single.losses()), 1e-6) << LayoutText(layout);
    EXPECT_LT(RelativeDifference(spread.grad_norms(), single.grad_norms()), 1e-5);
    EXPECT_EQ(spread.allocated_bytes, spread.planned_bytes) << LayoutText(layout);
  }
}

// A shared kv head is saved once, and whoever needs it reads it.
TEST(LlamaTrainer, ResumesWithSharedAndWithOwnKvHeads) {
  const TestFolder folder;
  JobSpec job = LlamaJob(folder.path(), 2);
  job.checkpoint.interval = 10;
  const Layout sharing = MakeLayout(1, 4, 1, k1f1b, 4, job);
  const TrainingOutcome whole = TrainWith(job, sharing, folder.Make("whole"));
  ASSERT_EQ(whole.status(), absl::OkStatus());
  ASSERT_EQ(whole.committed.size(), 2U);
  const std::vector<double> losses = whole.losses();
  const std::vector<double> last_ten(losses.begin() + 10, losses.end());
  const TrainingOutcome again =
      TrainWith(job, sharing, folder.Make("again"), whole.committed.front());
  ASSERT_EQ(again.status(), absl::OkStatus());
  EXPECT_EQ(again.losses(), last_ten) << "the same layout: the same bits";
  const TrainingOutcome owning = TrainWith(job, MakeLayout(1, 2, 1, k1f1b, 4, job),
                                           folder.Make("owning"), whole.committed.front());
  ASSERT_EQ(owning.status(), absl::OkStatus());
  EXPECT_LT(RelativeDifference(owning.losses(), last_ten), 1e-6);
}

TEST(LlamaTrainer, TrainsTheSameBitsTwice) {
  const TestFolder folder;
  const JobSpec job = LlamaJob(folder.path(), 2);
  const Layout layout = MakeLayout(1, 2, 2, k1f1b, 2, job);
  const TrainingOutcome first = TrainWith(job, layout, folder.Make("first"));
  const TrainingOutcome second = TrainWith(job, layout, folder.Make("second"));
  ASSERT_EQ(first.status(), absl::OkStatus());
  EXPECT_EQ(Bits(first.reports.front()), Bits(second.reports.front()));
  EXPECT_EQ(first.weights, second.weights);
}

}  // namespace
}  // namespace weft
