// Sequence parallelism: tokens cut over tp outside of products change memory, not the model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/block/tensors.h"
#include "plan/spec/layout_text.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

struct TokenCutCase {
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int virtual_stages = 1;
  Recompute recompute = Recompute::kNone;
  int64_t head_chunk_tokens = 0;
  std::vector<int64_t> layers_per_stage = {};
};

Layout LayoutOf(const TokenCutCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size, job);
  layout.virtual_stages = c.virtual_stages;
  layout.recompute = c.recompute;
  layout.head_chunk_tokens = c.head_chunk_tokens;
  layout.layers_per_stage = c.layers_per_stage;
  layout.sequence_parallel = true;
  return layout;
}

void PrintTo(const TokenCutCase& c, std::ostream* out) {
  JobSpec job;
  job.training.global_batch_size = 8;  // SmallJob's
  *out << LayoutText(LayoutOf(c, job));
}

class AnyLayoutThatCutsTokens : public testing::TestWithParam<TokenCutCase> {};

TEST_P(AnyLayoutThatCutsTokens, TrainsTheSameModelAsASingleRankInThePlannedMemory) {
  const TestFolder folder;
  for (const JobSpec& job : {SmallJob(folder.path()), SmallLlamaJob(folder.path(), 2)}) {
    const std::string name(WordOf(job.model.architecture));
    const TrainingOutcome single =
        TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make(name + "single"));
    ASSERT_EQ(single.status(), absl::OkStatus());
    ASSERT_LT(single.losses().back(), single.losses().front() - 1) << "the test proves little";
    const TrainingOutcome cut =
        TrainWith(job, LayoutOf(GetParam(), job), folder.Make(name + "cut"));
    ASSERT_EQ(cut.status(), absl::OkStatus());
    EXPECT_LT(RelativeDifference(cut.losses(), single.losses()), 1e-6) << name;
    EXPECT_LT(RelativeDifference(cut.grad_norms(), single.grad_norms()), 1e-5) << name;
    EXPECT_GT(cut.planned_bytes.front(), 0);
    EXPECT_EQ(cut.allocated_bytes, cut.planned_bytes);
  }
}

// With whole residuals every operation on a row is the same one, so only sums over tokens differ:
// the gradients of norms.
TEST_P(AnyLayoutThatCutsTokens, HasTheBitsOfWholeResidualsButForNorms) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.training.steps = 1;
  Layout layout = LayoutOf(GetParam(), job);
  const TrainingOutcome cut = TrainWith(job, layout, folder.Make("cut"));
  layout.sequence_parallel = false;
  const TrainingOutcome whole = TrainWith(job, layout, folder.Make("whole"));
  ASSERT_EQ(cut.status(), absl::OkStatus());
  ASSERT_EQ(whole.status(), absl::OkStatus());
  EXPECT_EQ(cut.losses(), whole.losses());
  EXPECT_LT(GradientDifference(cut, whole), 2e-6);
  ASSERT_EQ(cut.gradients.size(), Tensors(job.model).size());
  for (const auto& [name, gradient] : cut.gradients) {
    if (absl::StrContains(name, "norm")) continue;
    EXPECT_EQ(gradient, whole.gradients.at(name)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Trainer, AnyLayoutThatCutsTokens,
    testing::Values(TokenCutCase{1, 2, 1, k1f1b, 2}, TokenCutCase{1, 4, 1, kGpipe, 1},
                    TokenCutCase{2, 2, 2, k1f1b, 1}, TokenCutCase{1, 4, 2, kZeroBubble, 2},
                    TokenCutCase{1, 2, 2, kInterleaved, 2, 2},
                    TokenCutCase{1, 2, 3, kZeroBubble, 2, 1, Recompute::kNone, 22, {1, 2, 1}},
                    TokenCutCase{1, 2, 1, k1f1b, 4, 1, Recompute::kFull, 26},
                    TokenCutCase{1, 2, 2, k1f1b, 1, 1, Recompute::kSelective, 16, {1, 3}},
                    TokenCutCase{1, 4, 2, kInterleaved, 1, 2, Recompute::kFull}));

// Two causes of partial gradients at once: one kv head for four ranks, and cut tokens.
TEST(SequenceParallel, TrainsWhereRanksShareKvHeads) {
  const TestFolder folder;
  for (const int64_t kv_heads : {1, 2}) {
    const JobSpec job = SmallLlamaJob(folder.path(), kv_heads);
    const TrainingOutcome single = TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job),
                                             folder.Make(absl::StrCat("single", kv_heads)));
    Layout layout = MakeLayout(1, 4, 2, k1f1b, 2, job);
    layout.sequence_parallel = true;
    const TrainingOutcome cut = TrainWith(job, layout, folder.Make(absl::StrCat("cut", kv_heads)));
    ASSERT_EQ(cut.status(), absl::OkStatus());
    EXPECT_LT(RelativeDifference(cut.losses(), single.losses()), 1e-6) << kv_heads;
    EXPECT_LT(RelativeDifference(cut.grad_norms(), single.grad_norms()), 1e-5) << kv_heads;
  }
}

// Parts of a bucket with a norm and an uneven share of the vocabulary.
TEST(SequenceParallel, TrainsUnderZeroWithAVocabularyThatTpDoesNotDivide) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.model.vocab_size = 259;
  job.training.steps = 5;
  const TrainingOutcome single =
      TrainWith(job, MakeLayout(1, 1, 1, k1f1b, 2, job), folder.Make("single"));
  ASSERT_EQ(single.status(), absl::OkStatus());
  for (const int zero_stage : {1, 2, 3}) {
    Layout layout = MakeLayout(2, 2, 1, k1f1b, 2, job);
    layout.zero_stage = zero_stage;
    layout.sequence_parallel = true;
    const TrainingOutcome cut = TrainWith(job, layout, folder.Make(LayoutText(layout)));
    ASSERT_EQ(cut.status(), absl::OkStatus()) << zero_stage;
    EXPECT_LT(RelativeDifference(cut.losses(), single.losses()), 1e-6) << zero_stage;
    EXPECT_LT(RelativeDifference(cut.grad_norms(), single.grad_norms()), 1e-5) << zero_stage;
    EXPECT_EQ(cut.allocated_bytes, cut.planned_bytes) << zero_stage;
  }
}

TEST(SequenceParallel, ValidatesResumesAndNeedsLessMemory) {
  const TestFolder folder;
  JobSpec job = SmallJob(folder.path());
  job.data.split = 0.2;
  job.validation = {.interval = 10, .steps = 1};
  job.checkpoint.interval = 10;
  Layout layout = MakeLayout(1, 2, 2, k1f1b, 2, job);
  const TrainingOutcome whole = TrainWith(job, layout, folder.Make("whole"));
  layout.sequence_parallel = true;
  const TrainingOutcome cut = TrainWith(job, layout, folder.Make("cut"));
  ASSERT_EQ(cut.status(), absl::OkStatus());
  const double valid = *whole.reports.front().back().valid_loss;
  EXPECT_NEAR(*cut.reports.front().back().valid_loss, valid, 1e-6 * valid);
  EXPECT_LT(cut.planned_bytes.front(), whole.planned_bytes.front());
  const TrainingOutcome again = TrainWith(job, layout, folder.Make("again"), cut.committed.front());
  ASSERT_EQ(again.status(), absl::OkStatus());
  const std::vector<double> losses = cut.losses();
  EXPECT_EQ(again.losses(), std::vector<double>(losses.begin() + 10, losses.end()));
}

}  // namespace
}  // namespace weft
