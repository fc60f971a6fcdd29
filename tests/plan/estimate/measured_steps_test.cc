// The time model against published measurements: figures copied as facts, source named. All
// sources, with errors of what was not fitted, are bench/planner_accuracy's.
#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>

#include "plan/engine/constants.h"
#include "plan/estimate/step_estimate.h"

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
constexpr MeasuredPipeline kPipelines[] = {
    {12, 1024, 2, {0.0700, 0.1185, 0.2156, 0.4098}},
    {12, 1024, 4, {0.0608, 0.0914, 0.1525, 0.2747}},
    {12, 2048, 2, {0.0884, 0.1483, 0.2680, 0.5075}},
    {12, 2048, 4, {0.0769, 0.1174, 0.1983, 0.3601}},
    {24, 1024, 2, {0.1254, 0.2099, 0.3790, 0.7170}},
    {24, 1024, 4, {0.1066, 0.1551, 0.2522, 0.4464}},
    {24, 2048, 2, {0.1528, 0.2515, 0.4489, 0.8437}},
    {24, 2048, 4, {0.1285, 0.1884, 0.3081, 0.5476}},
};

// The part's data sheet, with what training reaches of it.
Cluster A100Node() {
  const GenerationConstants reached = FittedTimeConstants().ampere;
  Cluster cluster;
  cluster.name = "a100-node";
  cluster.slots_per_node = 8;
  DeviceProfile& device = cluster.device;
  device.name = "a100-80g";
  device.backend = BackendKind::kCuda;
  device.memory_bytes = int64_t{80} << 30;
  device.compute_units = 108;
  device.peak_flops_per_s = {.fp32 = 19.5e12, .bf16 = 312e12};
  device.peak_memory_bytes_per_s = 2.039e12;
  device.matmul_efficiency.bf16 = reached.matmul_bf16;
  device.attention_efficiency = reached.attention;
  device.streaming_efficiency = reached.streaming;
  device.op_overhead_s = reached.op_overhead_s;
  cluster.intra_node = {.latency_s = reached.intra_latency_s,
                        .bytes_per_s = reached.intra_node * 300e9};
  return cluster;
}

Question GptOnA100(int64_t num_blocks, int64_t hidden_size, int64_t global_batch_size) {
  Question question;
  ModelShape& model = question.model;
  model.vocab_size = 51200;
  model.hidden_size = hidden_size;
  model.num_blocks = num_blocks;
  model.num_heads = model.num_kv_heads = 16;
  model.head_dim = hidden_size / 16;
  model.ffn_size = 4 * hidden_size;
  model.max_positions = 1024;
  question.cluster = A100Node();
  question.batch = {.global_batch_size = global_batch_size, .seq_len = 1024};
  question.numerics.precision = Precision::kFp16;
  question.engine = *EngineProfileNamed("megatron-deepspeed");
  return question;
}

TEST(MeasuredSteps, PipelinesOfVtrainTakeWhatTheModelSays) {
  double sum = 0;
  int rows = 0;
  for (const MeasuredPipeline& measured : kPipelines) {
    for (size_t i = 0; i < 4; ++i) {
      const Question question =
          GptOnA100(measured.num_blocks, measured.hidden_size, kMicrobatches[i]);
      const Layout layout = {.pp = measured.pp, .gradient_accumulation_steps = kMicrobatches[i]};
      const double error = EstimateStep(question, layout).total_s() / measured.step_s[i] - 1;
      EXPECT_LT(std::abs(error), 0.15)
          << measured.num_blocks << " blocks of " << measured.hidden_size << ", pp " << measured.pp
          << ", " << kMicrobatches[i] << " microbatches: " << error;
      sum += std::abs(error);
      ++rows;
    }
  }
  EXPECT_LT(sum / rows, 0.06);
}

}  // namespace
}  // namespace weft
