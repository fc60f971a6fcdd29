// Training that starts from weights of another run, in weft's or Hugging Face's form, under any
// layout.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/verify.h"
#include "tests/worker/rank_threads.h"

namespace weft {
namespace {

using testing::HasSubstr;

JobSpec JobOf(Architecture architecture, const std::string& folder) {
  JobSpec job = SmallJob(folder);
  job.training.steps = 4;
  job.data.split = 0.1;
  job.data.valid.clear();
  job.validation = {.interval = 4, .steps = 2};
  if (architecture == Architecture::kGpt2) return job;
  job.model = {.architecture = Architecture::kLlama,
               .vocab_size = 259,
               .hidden_size = 64,
               .num_blocks = 4,
               .num_heads = 4,
               .num_kv_heads = 2,
               .head_dim = 24,
               .ffn_size = 176,
               .max_positions = 48,
               .norm_eps = 1e-6,
               .tied_embeddings = false};
  return job;
}

// Returns the validation loss of a step with such weights and no update.
double ValidLossFrom(JobSpec job, const std::string& weights, const Layout& layout,
                     const std::string& run_folder) {
  job.init_from = weights;
  job.optimizer.lr = 0;
  job.training.steps = 1;
  job.validation.interval = 1;
  const TrainingOutcome outcome = TrainWith(job, layout, run_folder);
  EXPECT_EQ(outcome.status(), absl::OkStatus());
  if (!outcome.status().ok()) return 0;
  return outcome.reports.front().back().valid_loss.value_or(0);
}

class InitFrom : public testing::TestWithParam<Architecture> {};
INSTANTIATE_TEST_SUITE_P(Models, InitFrom,
                         testing::Values(Architecture::kGpt2, Architecture::kLlama),
                         [](const auto& each) { return std::string(WordOf(each.param)); });

TEST_P(InitFrom, GoesOnFromTheWeightsOfAnotherRun) {
  const TestFolder folder;
  const JobSpec job = JobOf(GetParam(), folder.path());
  const Layout alone = MakeLayout(1, 1, 1, k1f1b, 4, job);
  const TrainingOutcome trained = TrainWith(job, alone, folder.Make("run"));
  ASSERT_EQ(trained.status(), absl::OkStatus());
  const double valid_loss = trained.reports.front().back().valid_loss.value_or(0);
  ASSERT_GT(valid_loss, 0);
  const std::string step_folder = trained.committed.back();
  const auto manifest = VerifyCheckpoint(step_folder);
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  const auto reader = CheckpointReader::Open(step_folder, *manifest);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::string exported = folder.path() + "/exported";
  ASSERT_EQ(ExportHuggingFace(*reader, job.model, exported), absl::OkStatus());

  EXPECT_NE(ValidLossFrom(job, "", alone, folder.Make("drawn")), valid_loss);
  EXPECT_EQ(ValidLossFrom(job, step_folder, alone, folder.Make("from_step")), valid_loss);
  EXPECT_EQ(ValidLossFrom(job, exported, alone, folder.Make("from_exported")), valid_loss);
  const Layout cut = MakeLayout(2, 2, 2, k1f1b, 2, job);
  const double apart = ValidLossFrom(job, exported, cut, folder.Make("from_exported_cut"));
  EXPECT_NEAR(apart / valid_loss, 1, 1e-6);
}

TEST(InitFrom, RefusesWeightsOfAnotherModel) {
  const TestFolder folder;
  const JobSpec gpt2 = JobOf(Architecture::kGpt2, folder.path());
  const TrainingOutcome trained =
      TrainWith(gpt2, MakeLayout(1, 1, 1, k1f1b, 4, gpt2), folder.Make("run"));
  ASSERT_EQ(trained.status(), absl::OkStatus());
  JobSpec other = gpt2;
  other.model.ffn_size *= 2;
  other.init_from = trained.committed.back();
  const TrainingOutcome refused =
      TrainWith(other, MakeLayout(1, 1, 1, k1f1b, 4, other), folder.Make("other"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("mlp.up.weight"));
  other.init_from = folder.path() + "/nothing";
  const TrainingOutcome missing =
      TrainWith(other, MakeLayout(1, 1, 1, k1f1b, 4, other), folder.Make("missing"));
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("model.init_from: "));
}

}  // namespace
}  // namespace weft
