// Random models, machines and constraints for the search's property tests: small enough for brute
// force, odd enough to break assumptions. Seeds are the caller's.
#pragma once
#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "plan/estimate/question.h"
#include "plan/search/space.h"

namespace weft {

class Dice {
 public:
  explicit Dice(uint32_t seed) : engine_(seed) {}
  int64_t Between(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(engine_() % static_cast<uint64_t>(most - least + 1));
  }
  template <typename Value>
  Value Of(const std::vector<Value>& values) {
    return values[static_cast<size_t>(Between(0, static_cast<int64_t>(values.size()) - 1))];
  }
  bool Chance(int percent) { return Between(1, 100) <= percent; }

 private:
  std::mt19937_64 engine_;
};

inline ModelShape RandomModel(Dice& dice) {
  ModelShape model;
  const bool llama = dice.Chance(60);
  SetArchitecture(llama ? Architecture::kLlama : Architecture::kGpt2, model);
  model.vocab_size = dice.Of<int64_t>({64, 257, 1000, 50257});
  model.head_dim = dice.Of<int64_t>({8, 16, 64});
  model.num_heads = dice.Of<int64_t>({1, 2, 4, 6, 8, 12});
  model.num_kv_heads = model.num_heads;
  if (llama && dice.Chance(50)) model.num_kv_heads = model.num_heads % 2 == 0 ? 2 : 1;
  model.hidden_size = model.num_heads * model.head_dim;
  model.num_blocks = dice.Between(1, 9);
  model.ffn_size = model.hidden_size * dice.Between(2, 4);
  model.max_positions = 4096;
  model.tied_embeddings = !llama || dice.Chance(30);
  if (llama && dice.Chance(25)) {
    model.num_experts = dice.Of<int64_t>({2, 4, 8});
    model.experts_per_token = std::min<int64_t>(2, model.num_experts);
    model.expert_ffn_size = model.ffn_size;
  }
  return model;
}

inline Cluster RandomCluster(Dice& dice) {
  Cluster cluster;
  cluster.name = "random";
  cluster.nodes = static_cast<int>(dice.Between(1, 4));
  cluster.slots_per_node = dice.Of<int>({1, 2, 4, 5, 8});
  DeviceProfile& device = cluster.device;
  const bool cpu = dice.Chance(30);
  device.name = cpu ? "slot" : "gpu";
  device.backend = cpu ? BackendKind::kCpu : BackendKind::kCuda;
  if (cpu && dice.Chance(70)) cluster.cores_per_node = static_cast<int>(dice.Between(1, 8));
  device.memory_bytes = int64_t{1} << dice.Between(24, 34);
  device.library_bytes = device.memory_bytes / dice.Between(8, 64);
  device.compute_units = cpu ? 0 : static_cast<int>(dice.Between(0, 140));
  const double rate = static_cast<double>(dice.Between(1, 100)) * (cpu ? 1e10 : 1e12);
  device.peak_flops_per_s = {rate, 2 * rate, 4 * rate};
  device.peak_memory_bytes_per_s = rate / static_cast<double>(dice.Between(20, 300));
  device.op_overhead_s = dice.Chance(70) ? 4e-6 : 0;
  cluster.intra_node = {.latency_s = dice.Chance(80) ? 5e-6 : 0,
                        .bytes_per_s = static_cast<double>(dice.Between(1, 900)) * 1e9};
  cluster.inter_node = {.latency_s = dice.Chance(80) ? 1e-5 : 0,
                        .bytes_per_s = static_cast<double>(dice.Between(1, 50)) * 1e9};
  return cluster;
}

inline Question RandomQuestion(Dice& dice) {
  Question question;
  question.model = RandomModel(dice);
  question.cluster = RandomCluster(dice);
  question.batch = {.global_batch_size = dice.Of<int64_t>({1, 2, 6, 8, 12, 16, 24}),
                    .seq_len = dice.Of<int64_t>({32, 48, 100, 256, 1024})};
  question.numerics.precision = dice.Of<Precision>({Precision::kFp32, Precision::kBf16});
  // One draw of four, so that seeds that tests name keep their questions; the two profiles that are
  // like another one stand in for it where the number of blocks is odd.
  std::string engine =
      dice.Of<std::string>({"weft", "megatron", "megatron-deepspeed", "pytorch-eager"});
  const bool odd = question.model.num_blocks % 2 == 1;
  if (odd && engine == "megatron-deepspeed") engine = "megatron-lm";
  if (odd && engine == "pytorch-eager") engine = "pytorch-fsdp";
  question.engine = *EngineProfileNamed(engine);
  // This asks for both formats of sums without another throw.
  if (question.engine.memory.arena && question.numerics.precision == Precision::kBf16) {
    question.numerics.reduce_dtype = ReduceDtype::kBf16;
  }
  if (dice.Chance(10)) question.adapters = LowRankAdapters{.rank = 4};
  question.deterministic = dice.Chance(30);
  return question;
}

// Some values fixed, now and then.
inline LayoutSpec RandomConstraints(Dice& dice) {
  LayoutSpec fixed;
  if (dice.Chance(15)) fixed.tp = static_cast<int>(dice.Between(1, 4));
  if (dice.Chance(15)) fixed.pp = static_cast<int>(dice.Between(1, 4));
  if (dice.Chance(15)) fixed.dp = static_cast<int>(dice.Between(1, 4));
  if (dice.Chance(15)) fixed.cp = static_cast<int>(dice.Between(1, 2));
  if (dice.Chance(15)) fixed.zero_stage = static_cast<int>(dice.Between(0, 3));
  if (dice.Chance(15)) fixed.micro_batch_size = dice.Between(1, 3);
  if (dice.Chance(10)) fixed.recompute = dice.Of<Recompute>({Recompute::kNone, Recompute::kFull});
  if (dice.Chance(10)) fixed.sequence_parallel = dice.Chance(50);
  if (dice.Chance(10)) fixed.offload_optimizer = OffloadDevice::kCpu;
  if (dice.Chance(10)) {
    fixed.pp_schedule = dice.Of<ScheduleKind>(
        {ScheduleKind::kGpipe, ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1});
  }
  if (dice.Chance(5)) fixed.recompute_per_stage = {Recompute::kFull, Recompute::kNone};
  return fixed;
}

}  // namespace weft
