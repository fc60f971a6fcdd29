#include "tests/launcher/saved_model.h"

#include <cmath>

#include "checkpoint/checkpoint.h"
#include "gtest/gtest.h"
#include "plan/block/tensors.h"

namespace weft {

ModelShape SmallModel(int64_t vocab_size) {
  return {.architecture = Architecture::kLlama,
          .vocab_size = vocab_size,
          .hidden_size = 16,
          .num_blocks = 2,
          .num_heads = 2,
          .num_kv_heads = 1,
          .head_dim = 8,
          .ffn_size = 24,
          .max_positions = 40};
}

std::vector<std::vector<float>> ArbitraryWeights(const ModelShape& model) {
  std::vector<std::vector<float>> values;
  for (const TensorSpec& tensor : Tensors(model)) {
    std::vector<float>& all = values.emplace_back(static_cast<size_t>(tensor.elements()));
    for (size_t i = 0; i < all.size(); ++i) {
      all[i] = 0.3F * static_cast<float>(std::sin(static_cast<double>(i * 7 + values.size())));
    }
  }
  return values;
}

void SaveModel(const JobFolder& folder, const ModelShape& model, const std::string& format,
               const std::map<std::string, std::string>& facts) {
  SaveModel(folder, model, ArbitraryWeights(model), format, facts);
}

void SaveModel(const JobFolder& folder, const ModelShape& model,
               const std::vector<std::vector<float>>& values, const std::string& format,
               const std::map<std::string, std::string>& facts) {
  Manifest manifest;
  manifest.step = 7;
  manifest.generation = 1;
  manifest.model = model;
  manifest.facts = facts;
  manifest.facts.insert({{"data.format", format},
                         {"data.split", "0"},
                         {"training.seq_len", "16"},
                         {"training.global_batch_size", "4"},
                         {"training.micro_batch_size", "2"}});
  std::vector<BoxToSave> boxes;
  for (const TensorSpec& tensor : Tensors(model)) {
    boxes.push_back({tensor.name, tensor.dims, std::vector<int64_t>(tensor.dims.size(), 0),
                     tensor.dims, values[boxes.size()]});
  }
  const std::string saved = folder.path() + "/saved";
  const auto shard = WriteShard(StageFolder(saved, "", 1, 7), 0, boxes);
  ASSERT_TRUE(shard.ok()) << shard.status();
  manifest.shards = {*shard};
  ASSERT_EQ(CommitCheckpoint(saved, manifest), absl::OkStatus());
}

}  // namespace weft
