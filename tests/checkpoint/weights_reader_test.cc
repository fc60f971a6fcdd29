// Weights of a step folder and of the Hugging Face directory that is made of it: the same boxes,
// and only for the model that they are of.
#include "checkpoint/weights_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "checkpoint/huggingface.h"
#include "plan/block/tensors.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/checkpoint/small_models.h"

namespace weft {
namespace {

using testing::HasSubstr;

class Weights : public testing::TestWithParam<Architecture> {
 protected:
  Weights() {
    std::string name = testing::TempDir() + "/weights-XXXXXX";
    folder_ = mkdtemp(name.data());
    model_ = GetParam() == Architecture::kGpt2 ? Gpt2() : Llama();
    saved_ = SaveSmallCheckpoint(folder_, 3, model_);
    const auto reader = CheckpointReader::Open(saved_.step_folder, saved_.manifest);
    EXPECT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(ExportHuggingFace(*reader, model_, exported()), absl::OkStatus());
  }
  ~Weights() override { std::filesystem::remove_all(folder_); }

  std::string exported() const { return folder_ + "/hf"; }

  std::string folder_;
  ModelShape model_;
  SmallCheckpoint saved_;
};
INSTANTIATE_TEST_SUITE_P(Models, Weights,
                         testing::Values(Architecture::kGpt2, Architecture::kLlama),
                         [](const auto& each) { return std::string(WordOf(each.param)); });

TEST_P(Weights, AreTheSameInAStepFolderAndExported) {
  for (const std::string& folder : {saved_.step_folder, exported()}) {
    const auto reader = WeightsReader::Open(folder, model_);
    ASSERT_TRUE(reader.ok()) << reader.status();
    for (const TensorSpec& tensor : Tensors(model_)) {
      // All but the first row or element.
      std::vector<int64_t> begin(tensor.dims.size(), 0);
      begin[0] = 1;
      const int64_t left_out = tensor.elements() / tensor.dims[0];
      std::vector<float> read(static_cast<size_t>(tensor.elements() - left_out));
      ASSERT_EQ(reader->Read(tensor, begin, tensor.dims, absl::MakeSpan(read)), absl::OkStatus());
      std::vector<float> expected = saved_.values.at(tensor.name);
      expected.erase(expected.begin(), expected.begin() + left_out);
      EXPECT_EQ(read, expected) << folder << ": " << tensor.name;
    }
  }
}

TEST_P(Weights, OfAnotherModelAreRefusedByTheFirstTensorThatDiffers) {
  for (const std::string& folder : {saved_.step_folder, exported()}) {
    ModelShape deeper = model_;
    ++deeper.num_blocks;
    EXPECT_THAT(std::string(WeightsReader::Open(folder, deeper).status().message()),
                HasSubstr("which the model has"));
    ModelShape shallower = model_;
    --shallower.num_blocks;
    EXPECT_THAT(std::string(WeightsReader::Open(folder, shallower).status().message()),
                HasSubstr("for which the model has no place"));
    ModelShape wider = model_;
    ++wider.ffn_size;
    EXPECT_THAT(std::string(WeightsReader::Open(folder, wider).status().message()),
                HasSubstr("the model's is ["));
  }
}

TEST_P(Weights, OfAStepFolderAreVerifiedByTheirChecksums) {
  const std::string shard = saved_.step_folder + "/" + saved_.manifest.shards.front().file;
  std::fstream file(shard, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end);
  file.put('\x7f');
  file.close();
  const auto reader = WeightsReader::Open(saved_.step_folder, model_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const TensorSpec tensor = Tensors(model_).front();
  std::vector<float> values(static_cast<size_t>(tensor.elements()));
  const absl::Status read = reader->Read(tensor, std::vector<int64_t>(tensor.dims.size(), 0),
                                         tensor.dims, absl::MakeSpan(values));
  EXPECT_EQ(read.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(read.message()), HasSubstr(": xxh3 "));
  EXPECT_EQ(ModelOfStepFolder(saved_.step_folder).value(), model_);
  EXPECT_FALSE(ModelOfStepFolder(exported()).ok());
}

}  // namespace
}  // namespace weft
