// model.init_from in a job file: whose weights, and which model they are of.
#include "launcher/job_file/init_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "checkpoint/huggingface.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/run/run_folder.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class InitWeights : public ::testing::Test {
 protected:
  // The good job's model as a checkpoint, and exported.
  InitWeights() {
    const auto job = Read(kGoodJob);
    EXPECT_TRUE(job.ok()) << job.status();
    model_ = job->job.model;
    SaveSmallCheckpoint(folder_.path() + "/other", 7, model_);
    Export("hf", model_);
  }

  absl::StatusOr<JobFile> Read(const std::string& text) {
    return ReadJobText(text, folder_.job(), {.sets = {}, .check_files = true});
  }
  // The good job with these lines for its model's.
  static std::string JobWithModel(const std::string& lines) {
    std::string text = kGoodJob;
    const size_t begin = text.find("  model_type"), end = text.find("data:\n");
    return text.replace(begin, end - begin, lines);
  }

  static ModelShape SmallLlama() {
    ModelShape model = {.architecture = Architecture::kLlama,
                        .vocab_size = 256,
                        .hidden_size = 32,
                        .num_blocks = 2,
                        .num_heads = 4,
                        .num_kv_heads = 2,
                        .head_dim = 8,
                        .ffn_size = 64,
                        .max_positions = 64};
    model.norm_eps = 1e-5;
    model.rope_theta = 20000;
    model.tied_embeddings = false;
    return model;
  }
  // Weights of `model` as a Hugging Face directory.
  void Export(const std::string& name, const ModelShape& model) {
    const SmallCheckpoint saved = SaveSmallCheckpoint(folder_.path() + "/of_" + name, 7, model);
    const auto reader = CheckpointReader::Open(saved.step_folder, saved.manifest);
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(ExportHuggingFace(*reader, model, folder_.path() + "/" + name), absl::OkStatus());
  }

  JobFolder folder_;
  ModelShape model_;
};

TEST_F(InitWeights, SayWhatModelTheyAreOf) {
  for (const std::string from : {"hf", "other/step-7"}) {
    const auto file = Read(JobWithModel("  init_from: " + from + "\n"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->job.model, model_) << from;
    EXPECT_EQ(file->job.init_from, folder_.path() + "/" + from);
    // A run's record of it reads back, also where the weights are gone.
    const std::string resolved = ResolvedText(file->job, {});
    std::filesystem::rename(folder_.path() + "/hf", folder_.path() + "/moved");
    const auto again = ReadJobText(resolved, folder_.job(), {.sets = {}, .check_files = false});
    std::filesystem::rename(folder_.path() + "/moved", folder_.path() + "/hf");
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->job.init_from, file->job.init_from);
    EXPECT_EQ(again->job.model, model_);
  }
}

TEST_F(InitWeights, AreRefusedWhereTheyAreOfAnotherModel) {
  const std::string keys =
      "  {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 32, n_layer: 2, n_head: 4, "
      "init_from: ";
  for (const std::string from : {"hf", "other/step-7"}) {
    const auto file = Read(JobWithModel(keys + from + "}\n"));
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(file.status().message()), HasSubstr("model.init_from: "));
    EXPECT_THAT(std::string(file.status().message()),
                HasSubstr("for which the model has no place"));
  }
  EXPECT_THAT(std::string(Read(JobWithModel("  init_from: nowhere\n")).status().message()),
              HasSubstr("no such folder: "));
  std::filesystem::create_directories(folder_.path() + "/empty");
  EXPECT_THAT(std::string(Read(JobWithModel("  init_from: empty\n")).status().message()),
              HasSubstr("empty holds neither config.json nor manifest.json; name a Hugging Face "
                        "directory or a step-N folder of a run"));
}

// Each would load without a word, and mean something else.
TEST_F(InitWeights, AreRefusedWhereTheyWereTrainedOtherwise) {
  const auto gpt2 = [](int heads) {
    return absl::StrCat(
        "  {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 32, n_layer: 4, n_head: ",
        heads, ", init_from: ");
  };
  const auto says = [this](const std::string& model, const std::string& text) {
    const auto file = Read(JobWithModel(model));
    EXPECT_EQ(file.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(file.status().message()), HasSubstr(text)) << model;
  };
  ASSERT_EQ(model_.num_heads, 4);
  for (const std::string from : {"hf", "other/step-7"}) {
    const std::string folder = folder_.path() + "/" + from;
    ASSERT_TRUE(Read(JobWithModel(gpt2(4) + from + "}\n")).ok());
    says(gpt2(2) + from + "}\n",
         absl::StrCat("model.n_head: found 2, but ", folder, " was trained with 4; use 4"));
  }
  // The keys of a llama have defaults.
  Export("llama", SmallLlama());
  const auto keys = [](int heads, int kv_heads) {
    return absl::StrCat(
        "  {model_type: llama, vocab_size: 256, max_position_embeddings: 64, hidden_size: 32, "
        "num_hidden_layers: 2, intermediate_size: 64, init_from: llama, num_attention_heads: ",
        heads, ", num_key_value_heads: ", kv_heads);
  };
  // Matrices of the same sizes.
  for (const std::string wrong :
       {"model.num_attention_heads: found 2, but ", "model.num_key_value_heads: found 1, but ",
        "model.head_dim: found 16, but "}) {
    says(keys(2, 1) + "}\n", wrong);
  }
  const std::string heads = keys(4, 2);
  says(heads + "}\n", "model.rope_theta: not stated and so 10000, but ");
  says(heads + ", rope_theta: 20000.0}\n", "model.rms_norm_eps: not stated and so 1e-06, but ");
  says(heads + ", rope_theta: 20000.0, rms_norm_eps: 1.0e-5, tie_word_embeddings: true}\n",
       "model.tie_word_embeddings: found true, but ");
  const auto same = Read(JobWithModel(heads + ", rope_theta: 20000.0, rms_norm_eps: 1.0e-5}\n"));
  ASSERT_TRUE(same.ok()) << same.status();
  // A key that a person writes may differ: longer contexts are made that way.
  const auto stretched =
      Read(JobWithModel(heads + ", rope_theta: 40000.0, rms_norm_eps: 1.0e-5}\n"));
  ASSERT_TRUE(stretched.ok()) << stretched.status();
  EXPECT_THAT(stretched->notes, testing::Contains(HasSubstr("model.rope_theta: 40000, though ")));
  EXPECT_THAT(same->notes, testing::Not(testing::Contains(HasSubstr("though"))));
}

TEST_F(InitWeights, AreNamedWhereAFolderHoldsSome) {
  const auto message = [this](const std::string& from, bool with_keys) {
    const std::string keys =
        "model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 32, n_layer: 4, n_head: 4, ";
    const auto file =
        Read(JobWithModel(absl::StrCat("  {", with_keys ? keys : "", "init_from: ", from, "}\n")));
    return std::string(file.status().message());
  };
  for (const bool with_keys : {false, true}) {
    EXPECT_THAT(message("other", with_keys),
                HasSubstr("/other holds checkpoints; name one of them: " + folder_.path() +
                          "/other/step-7"));
    EXPECT_THAT(message("nowhere", with_keys),
                HasSubstr("no such folder: " + folder_.path() + "/nowhere"));
  }
}

// A run is gone on with from its own checkpoints, and only from those.
TEST_F(InitWeights, AreNeededUntilTheRunHasSaved) {
  const std::string text = JobWithModel("  init_from: hf\n");
  const auto first = Read(text);
  ASSERT_TRUE(first.ok()) << first.status();
  std::filesystem::rename(folder_.path() + "/hf", folder_.path() + "/moved");
  const std::string with_keys = JobWithModel(
      "  {model_type: gpt2, vocab_size: 256, n_positions: 64, n_embd: 32, n_layer: 4, n_head: 4, "
      "init_from: hf}\n");
  const std::string run = PathsOf(first->job).folder;
  std::filesystem::create_directories(run);
  folder_.Write(std::filesystem::relative(PathsOf(first->job).resolved(), folder_.path()),
                ResolvedText(first->job, {}));
  EXPECT_THAT(std::string(Read(with_keys).status().message()), HasSubstr("no such folder"));
  SaveSmallCheckpoint(CheckpointFolder(first->job), 5, model_);
  EXPECT_TRUE(Read(with_keys).ok());
  EXPECT_FALSE(
      ReadJobText(with_keys, folder_.job(), {.sets = {}, .check_files = true, .fresh = true}).ok());
  // Its own checkpoint would be moved away with the run.
  const std::string own =
      JobWithModel(absl::StrCat("  init_from: ", CheckpointFolder(first->job), "/step-5\n"));
  const auto fresh =
      ReadJobText(own, folder_.job(), {.sets = {}, .check_files = true, .fresh = true});
  EXPECT_THAT(std::string(fresh.status().message()),
              HasSubstr("lies in the run's own folder, which --fresh moves aside"));
}

}  // namespace
}  // namespace weft
