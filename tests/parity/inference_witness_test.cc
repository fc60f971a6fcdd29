// These tests hold what weft eval computes against the NumPy models: a training at a rate too small
// to move a weight loses, over one epoch, what the initial weights lose on every window.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "checkpoint/verify.h"
#include "checkpoint/weights_reader.h"
#include "data/sampling.h"
#include "plan/block/tensors.h"
#include "plan/shards/shard.h"
#include "tests/parity/training.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/model/inference.h"
#include "worker/state/initial_weights.h"

namespace weft {
namespace {

constexpr int64_t kSteps = 6;

class InferenceWitness : public testing::TestWithParam<Architecture> {
 protected:
  InferenceWitness() {
    std::string name = testing::TempDir() + "/inference-XXXXXX";
    folder_ = mkdtemp(name.data());
    job_ = GetParam() == Architecture::kLlama ? EnglishLlamaJob() : EnglishJob();
    job_.training.steps = kSteps;
    job_.optimizer.lr = 1e-30;
    job_.lr_scheduler = {.type = LrSchedule::kConstant};
    // The text has as many windows as an epoch of so many steps takes, and one token more.
    const int64_t windows = kSteps * job_.training.global_batch_size;
    std::string text(static_cast<size_t>(windows * job_.training.seq_len + 1), ' ');
    std::ifstream(kTextFile).read(text.data(), std::ssize(text));
    std::ofstream(folder_ + "/text.txt") << text;
    job_.data.train = {{folder_ + "/text.txt"}};
  }
  ~InferenceWitness() override { std::filesystem::remove_all(folder_); }

  std::string SaveInitialWeights() {
    std::vector<std::vector<float>> values;
    std::vector<BoxToSave> boxes;
    const std::vector<TensorSpec> tensors = Tensors(job_.model);
    for (const TensorSpec& tensor : tensors) {
      TensorShard whole;
      whole.tensor = tensor;
      whole.begin.assign(tensor.dims.size(), 0);
      whole.end = tensor.dims;
      values.emplace_back(static_cast<size_t>(tensor.elements()));
      FillInitialValues(whole, job_.training.seed, 1, absl::MakeSpan(values.back()));
      boxes.push_back({tensor.name, tensor.dims, whole.begin, whole.end, {}});
    }
    for (size_t i = 0; i < boxes.size(); ++i) boxes[i].values = values[i];
    Manifest manifest;
    manifest.model = job_.model;
    const auto shard = WriteShard(StageFolder(folder_, "", 0, 0), 0, boxes);
    EXPECT_TRUE(shard.ok()) << shard.status();
    manifest.shards = {*shard};
    EXPECT_EQ(CommitCheckpoint(folder_, manifest), absl::OkStatus());
    return StepFolder(folder_, 0);
  }

  // Returns the mean loss over every window once.
  double EvaluatedLoss(const std::string& checkpoint) {
    const auto manifest = VerifyCheckpoint(checkpoint);
    const auto reader = WeightsReader::Open(checkpoint, *manifest->model);
    const std::unique_ptr<Device> device = MakeCpuDevice({});
    const int64_t length = job_.training.seq_len;
    const auto inference =
        Inference::Create(*manifest->model, {.batch = 4, .seq_len = length}, {}, *device);
    EXPECT_EQ((*inference)->Load(*reader, {}), absl::OkStatus());
    JobSpec whole = job_;
    whole.data.valid = job_.data.train;
    const auto data = Dataset::Open(whole, /*train=*/false);
    double sum = 0;
    for (int64_t first = 0; first < data->windows(); first += 4) {
      std::vector<int32_t> ids, targets;
      for (int64_t sample = first; sample < first + 4; ++sample) {
        std::vector<int32_t> tokens(static_cast<size_t>(length)), next(tokens.size());
        EXPECT_EQ(data->Sample(sample, absl::MakeSpan(tokens), absl::MakeSpan(next)),
                  absl::OkStatus());
        ids.insert(ids.end(), tokens.begin(), tokens.end());
        targets.insert(targets.end(), next.begin(), next.end());
      }
      sum += *(*inference)->LossSum(ids, targets);
    }
    return sum / static_cast<double>(data->windows() * length);
  }

  std::string folder_;
  JobSpec job_;
};
INSTANTIATE_TEST_SUITE_P(Models, InferenceWitness,
                         testing::Values(Architecture::kGpt2, Architecture::kLlama),
                         [](const auto& each) { return std::string(WordOf(each.param)); });

TEST_P(InferenceWitness, EvaluatesAsNumpyDoes) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy.message();
  const auto witness = TrainInNumpy(job_);
  ASSERT_TRUE(witness.ok()) << witness.status();
  ASSERT_EQ(std::ssize(witness->losses), kSteps);
  const double expected =
      std::accumulate(witness->losses.begin(), witness->losses.end(), 0.0) / kSteps;
  EXPECT_NEAR(EvaluatedLoss(SaveInitialWeights()) / expected, 1, 1e-6);
}

}  // namespace
}  // namespace weft
