// A checkpoint of one shard, of any small model.
#pragma once
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "plan/block/tensors.h"
#include "plan/spec/model.h"

namespace weft {

struct SmallCheckpoint {
  Manifest manifest;
  std::string step_folder;
  std::map<std::string, std::vector<float>> values;  // by tensor
};

// Values are all different, by tensor: each counts on from the one before.
inline SmallCheckpoint SaveSmallCheckpoint(const std::string& folder, int64_t step,
                                           const ModelShape& model) {
  SmallCheckpoint saved;
  saved.step_folder = StepFolder(folder, step);
  std::vector<BoxToSave> boxes;
  float next = 1;
  for (const TensorSpec& tensor : Tensors(model)) {
    std::vector<float>& all = saved.values[tensor.name];
    for (int64_t i = 0; i < tensor.elements(); ++i) all.push_back(next++);
    boxes.push_back(
        {tensor.name, tensor.dims, std::vector<int64_t>(tensor.dims.size(), 0), tensor.dims, all});
  }
  saved.manifest.step = step;
  saved.manifest.model = model;
  const auto shard = WriteShard(StageFolder(folder, saved.manifest.run_id, 0, step), 0, boxes);
  EXPECT_TRUE(shard.ok()) << shard.status();
  if (shard.ok()) saved.manifest.shards = {*shard};
  EXPECT_EQ(CommitCheckpoint(folder, saved.manifest), absl::OkStatus());
  return saved;
}

}  // namespace weft
