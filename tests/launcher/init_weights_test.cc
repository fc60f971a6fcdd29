// model.init_from in a job file: whose weights, and which model they are of.
#include "launcher/init_weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/huggingface.h"
#include "launcher/job_yaml.h"
#include "launcher/resolved_yaml.h"
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
    const SmallCheckpoint saved = SaveSmallCheckpoint(folder_.path() + "/other", 7, model_);
    const auto reader = CheckpointReader::Open(saved.step_folder, saved.manifest);
    EXPECT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(ExportHuggingFace(*reader, model_, folder_.path() + "/hf"), absl::OkStatus());
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

  JobFolder folder_;
  ModelShape model_;
};

TEST_F(InitWeights, SayWhatModelTheyAreOf) {
  for (const std::string from : {"hf", "other/step-7"}) {
    const auto file = Read(JobWithModel("  init_from: " + from + "\n"));
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->job.model, model_) << from;
    EXPECT_EQ(file->job.init_from, folder_.path() + "/" + from);
    // What a run keeps of it reads back, also where the weights are gone.
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
              HasSubstr("nowhere holds neither config.json nor manifest.json; name a Hugging Face "
                        "directory or a step-N folder of a run"));
}

}  // namespace
}  // namespace weft
