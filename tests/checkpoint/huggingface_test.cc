// A Hugging Face directory by its definition; tests/parity/torch_compare.py holds it against
// transformers itself.
#include "checkpoint/huggingface.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "plan/block/tensors.h"
#include "tests/checkpoint/small_checkpoint.h"
#include "tests/checkpoint/small_models.h"

namespace weft {
namespace {

using testing::HasSubstr;

class HuggingFace : public testing::Test {
 protected:
  HuggingFace() {
    std::string name = testing::TempDir() + "/huggingface-XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  ~HuggingFace() override { std::filesystem::remove_all(folder_); }

  CheckpointReader Checkpoint(const ModelShape& model) {
    const SmallCheckpoint saved = SaveSmallCheckpoint(folder_, 3, model);
    values_ = saved.values;
    auto reader = CheckpointReader::Open(saved.step_folder, saved.manifest);
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }

  std::unique_ptr<SafetensorsFile> Exported(const ModelShape& model) {
    EXPECT_EQ(ExportHuggingFace(Checkpoint(model), model, folder_ + "/hf"), absl::OkStatus());
    auto file = SafetensorsFile::Open(folder_ + "/hf/model.safetensors");
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }

  static std::vector<float> Read(const SafetensorsFile& file, const std::string& name) {
    const StoredTensor* const tensor = file.Find(name);
    EXPECT_NE(tensor, nullptr) << name;
    if (tensor == nullptr) return {};
    std::vector<float> values(static_cast<size_t>((tensor->end - tensor->begin) / 4));
    file.Read(*tensor, 0, std::ssize(values), values.data());
    return values;
  }

  std::string folder_;
  std::map<std::string, std::vector<float>> values_;
};

TEST_F(HuggingFace, Gpt2HoldsInputsByOutputsAndOneMatrixForQueriesKeysAndValues) {
  const auto file = Exported(Gpt2());
  EXPECT_EQ(file->metadata().at("format"), "pt");
  EXPECT_EQ(file->Find("transformer.h.1.attn.c_attn.weight")->dims, (std::vector<int64_t>{4, 12}));
  EXPECT_EQ(file->Find("transformer.h.1.mlp.c_fc.weight")->dims, (std::vector<int64_t>{4, 6}));
  const std::vector<float> fused = Read(*file, "transformer.h.1.attn.c_attn.weight");
  const std::vector<float> down = Read(*file, "transformer.h.0.mlp.c_proj.weight");
  for (size_t in = 0; in < 4; ++in) {
    for (size_t out = 0; out < 4; ++out) {
      size_t part = 0;
      for (const char* name : {"q", "k", "v"}) {
        const auto& ours = values_.at(std::string("blocks.1.attn.") + name + ".weight");
        EXPECT_EQ(fused[in * 12 + part++ * 4 + out], ours[out * 4 + in]) << name;
      }
    }
  }
  for (size_t in = 0; in < 6; ++in) {
    for (size_t out = 0; out < 4; ++out) {
      EXPECT_EQ(down[in * 4 + out], values_.at("blocks.0.mlp.down.weight")[out * 6 + in]);
    }
  }
  std::vector<float> biases = values_.at("blocks.0.attn.q.bias");
  for (const char* name : {"blocks.0.attn.k.bias", "blocks.0.attn.v.bias"}) {
    biases.insert(biases.end(), values_.at(name).begin(), values_.at(name).end());
  }
  EXPECT_EQ(Read(*file, "transformer.h.0.attn.c_attn.bias"), biases);
  EXPECT_EQ(Read(*file, "transformer.wpe.weight"), values_.at("embed.positions.weight"));
  EXPECT_EQ(file->Find("lm_head.weight"), nullptr) << "the head is tied";
}

TEST_F(HuggingFace, LlamaHoldsWhatWeftHoldsUnderOtherNames) {
  const auto file = Exported(Llama());
  EXPECT_EQ(Read(*file, "model.layers.1.self_attn.k_proj.weight"),
            values_.at("blocks.1.attn.k.weight"));
  EXPECT_EQ(Read(*file, "model.layers.0.self_attn.o_proj.bias"),
            values_.at("blocks.0.attn.o.bias"));
  EXPECT_EQ(Read(*file, "model.layers.1.post_attention_layernorm.weight"),
            values_.at("blocks.1.norm2.weight"));
  EXPECT_EQ(Read(*file, "lm_head.weight"), values_.at("head.weight"));
  const auto config = nlohmann::json::parse(HuggingFaceConfig(Llama()));
  EXPECT_EQ(config["architectures"][0], "LlamaForCausalLM");
  EXPECT_EQ(config["head_dim"], 4);
  EXPECT_EQ(config["num_key_value_heads"], 1);
  EXPECT_EQ(config["rope_scaling"]["rope_type"], "llama3");
  EXPECT_EQ(config["rope_scaling"]["original_max_position_embeddings"], 16);
  EXPECT_EQ(config["tie_word_embeddings"], false);
}

// Rows of one tensor: a head's query, its key, its value, then those of the next head.
TEST_F(HuggingFace, GptNeoxHoldsQueriesKeysAndValuesHeadByHead) {
  const auto file = Exported(GptNeox());
  for (const auto& [kind, cols] : {std::pair<std::string, size_t>{"weight", 8}, {"bias", 1}}) {
    std::vector<float> expected;
    for (size_t head = 0; head < 2; ++head) {
      for (const char* const name : {"q", "k", "v"}) {
        const auto& ours = values_.at("blocks.1.attn." + std::string(name) + "." + kind);
        const auto first = ours.begin() + static_cast<std::ptrdiff_t>(head * 4 * cols);
        expected.insert(expected.end(), first, first + static_cast<std::ptrdiff_t>(4 * cols));
      }
    }
    EXPECT_EQ(Read(*file, "gpt_neox.layers.1.attention.query_key_value." + kind), expected);
  }
  EXPECT_EQ(Read(*file, "gpt_neox.layers.0.post_attention_layernorm.bias"),
            values_.at("blocks.0.norm2.bias"));
  EXPECT_EQ(Read(*file, "embed_out.weight"), values_.at("head.weight"));
}

TEST_F(HuggingFace, LeavesNoTensorOut) {
  ModelShape olmo2 = Llama();
  SetArchitecture(Architecture::kOlmo2, olmo2);
  for (ModelShape model : {Gpt2(), Llama(), GptNeox(), olmo2}) {
    for (const bool tied : {false, true}) {
      model.tied_embeddings = tied;
      std::multiset<std::string> exported, all;
      for (const HuggingFaceTensor& tensor : HuggingFaceTensors(model)) {
        exported.insert(tensor.parts.begin(), tensor.parts.end());
      }
      for (const TensorSpec& tensor : Tensors(model)) all.insert(tensor.name);
      EXPECT_EQ(exported, all);
    }
  }
}

TEST_F(HuggingFace, NeverWritesIntoAFolderThatHoldsSomething) {
  const ModelShape model = Gpt2();
  const CheckpointReader reader = Checkpoint(model);
  const absl::Status status = ExportHuggingFace(reader, model, folder_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("new or empty folder"));
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/config.json"));
  std::filesystem::create_directory(folder_ + "/empty");
  EXPECT_EQ(ExportHuggingFace(reader, model, folder_ + "/empty"), absl::OkStatus());
}

}  // namespace
}  // namespace weft
