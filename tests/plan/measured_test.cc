// The cost model against published measurements: figures copied as facts, source named.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/cost.h"

namespace weft {
namespace {

constexpr int64_t kMicrobatches[] = {2, 4, 8, 16};

// Step seconds of GPT models under 1F1B on one node of A100-80G (fp16, sequences of 1,024, one per
// microbatch, dp = tp = 1), at 2, 4, 8 and 16 microbatches. vTrain, arXiv:2312.12391, measured
// times of github.com/VIA-Research/vTrain.
struct MeasuredPipeline {
  int64_t num_blocks, hidden_size;
  int pp;
  double step_s[4];
};
constexpr MeasuredPipeline kMeasured[] = {
    {12, 1024, 2, {0.0700, 0.1185, 0.2156, 0.4098}},
    {12, 1024, 4, {0.0608, 0.0914, 0.1525, 0.2747}},
    {12, 2048, 2, {0.0884, 0.1483, 0.2680, 0.5075}},
    {12, 2048, 4, {0.0769, 0.1174, 0.1983, 0.3601}},
    {24, 1024, 2, {0.1254, 0.2099, 0.3790, 0.7170}},
    {24, 1024, 4, {0.1066, 0.1551, 0.2522, 0.4464}},
    {24, 2048, 2, {0.1528, 0.2515, 0.4489, 0.8437}},
    {24, 2048, 4, {0.1285, 0.1884, 0.3081, 0.5476}},
};

// Nominal figures of the part at usual efficiency, nothing fitted: 0.45 of 312 TFLOP/s, three
// quarters of 2.0 TB/s, NVLink. The host's share is left out.
Cluster A100Node() {
  Cluster cluster;
  cluster.name = "a100-node";
  cluster.slots_per_node = 8;
  cluster.device.name = "a100-80g";
  cluster.device.backend = BackendKind::kCuda;
  cluster.device.memory_bytes = int64_t{80} << 30;
  cluster.device.peak_flops_per_s.fp32 = 140e12;
  cluster.device.peak_memory_bytes_per_s = 1.5e12;
  cluster.intra_node = {.latency_s = 1e-5, .bytes_per_s = 200e9};
  return cluster;
}

double PredictedSeconds(const MeasuredPipeline& measured, int64_t num_microbatches) {
  ModelShape model;
  model.vocab_size = 51200;
  model.hidden_size = measured.hidden_size;
  model.num_blocks = measured.num_blocks;
  model.num_heads = model.num_kv_heads = 16;
  model.head_dim = measured.hidden_size / 16;
  model.ffn_size = 4 * measured.hidden_size;
  model.max_positions = 1024;
  const Layout layout = {.pp = measured.pp, .num_microbatches = num_microbatches};
  return EstimateStepTime(model, A100Node(), {num_microbatches, 1024}, layout,
                          /*optimizer_states=*/2)
      .total_s();
}

// Absolute times are not claimed yet: the model knows neither kernels nor hosts, and fp32 only. How
// a step shrinks with the number of microbatches is the pipeline's bubble and the head's stage, and
// needs no constants. Without a bubble the shortest steps would come out 27 to 48 % too short.
TEST(Measured, StepsShrinkWithTheBatchAsThePipelineModelSays) {
  double sum = 0;
  int rows = 0;
  for (const MeasuredPipeline& measured : kMeasured) {
    const double predicted_longest_s = PredictedSeconds(measured, kMicrobatches[3]);
    for (size_t i = 0; i < 3; ++i) {
      const double predicted = PredictedSeconds(measured, kMicrobatches[i]) / predicted_longest_s;
      const double error = predicted / (measured.step_s[i] / measured.step_s[3]) - 1;
      EXPECT_LT(std::abs(error), 0.15)
          << measured.num_blocks << " blocks of " << measured.hidden_size << ", pp " << measured.pp
          << ", " << kMicrobatches[i] << " microbatches: " << error;
      sum += std::abs(error);
      ++rows;
    }
  }
  EXPECT_LT(sum / rows, 0.05);
}

}  // namespace
}  // namespace weft
