// This benchmark measures how long the search for a layout takes: the whole lattice with reasons
// recorded, and FindPlan with its repairs, dry runs and per-stage memory. One core, no I/O.
// Counters say how large the lattice is and how much of it had to be priced. Figures:
// bench/README.md.
#include <benchmark/benchmark.h>

#include <utility>

#include "plan/errors.h"
#include "plan/mixed/find_mixed.h"
#include "plan/search/lattice.h"
#include "plan/search/search.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

ModelShape Llama3(int64_t blocks, int64_t hidden, int64_t heads, int64_t ffn) {
  ModelShape model;
  SetArchitecture(Architecture::kLlama, model);
  model.vocab_size = 128256;
  model.hidden_size = hidden;
  model.num_blocks = blocks;
  model.num_heads = heads;
  model.num_kv_heads = 8;
  model.head_dim = hidden / heads;
  model.ffn_size = ffn;
  model.max_positions = 8192;
  model.tied_embeddings = false;
  return model;
}

// Grouped heads with norms of their own and experts in every block (Qwen/Qwen3-235B-A22B).
ModelShape Qwen3Moe() {
  ModelShape model = Llama3(94, 4096, 64, 12288);
  model.vocab_size = 151936;
  model.num_kv_heads = 4;
  model.head_dim = 128;
  model.max_positions = 40960;
  model.qk_norms = true;
  model.num_experts = 128;
  model.experts_per_token = 8;
  model.expert_ffn_size = 1536;
  return model;
}

// mistralai/Mixtral-8x7B-v0.1.
ModelShape Mixtral() {
  ModelShape model = Llama3(32, 4096, 32, 14336);
  model.vocab_size = 32000;
  model.max_positions = 32768;
  model.num_experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_size = 14336;
  return model;
}

// Latent attention, dense blocks before those with experts (deepseek-ai/DeepSeek-V3).
ModelShape DeepseekV3() {
  ModelShape model = Llama3(61, 7168, 128, 18432);
  model.vocab_size = 129280;
  model.num_kv_heads = 128;
  model.head_dim = 192;
  model.max_positions = 163840;
  model.latent = {
      .query_rank = 1536, .kv_rank = 512, .nope_dim = 128, .rope_dim = 64, .value_dim = 128};
  model.num_experts = 256;
  model.experts_per_token = 8;
  model.expert_ffn_size = 2048;
  model.num_dense_blocks = 3;
  model.shared_ffn_size = 2048;
  return model;
}

// Nodes of 8 H100 SXM, as configs/clusters/h100x8.yaml.
Cluster H100(int gpus) {
  Cluster cluster;
  cluster.name = "h100x8";
  cluster.nodes = (gpus + 7) / 8;
  cluster.slots_per_node = gpus < 8 ? gpus : 8;
  cluster.device.name = "H100-SXM-80GB";
  cluster.device.backend = BackendKind::kCuda;
  cluster.device.memory_bytes = 85'520'809'984;
  cluster.device.library_bytes = 3'221'225'472;
  cluster.device.compute_units = 132;
  cluster.device.peak_flops_per_s = {67e12, 989e12, 1979e12};
  cluster.device.matmul_efficiency = {0.75, 0.70, 0.60};
  cluster.device.attention_efficiency = 0.5;
  cluster.device.peak_memory_bytes_per_s = 3.35e12;
  cluster.device.streaming_efficiency = 0.84;
  cluster.device.op_overhead_s = 4e-6;
  cluster.intra_node = {.latency_s = 10e-6, .bytes_per_s = 370e9, .switch_reduces = true};
  cluster.inter_node = {.latency_s = 20e-6, .bytes_per_s = 45e9};
  cluster.storage = {.node_bytes_per_s = 2e9, .total_bytes_per_s = 0};
  cluster.failures = {.device_mtbf_hours = 50'700, .restart_s = 300};
  return cluster;
}

Question QuestionOf(ModelShape model, int gpus) {
  Question question;
  question.model = std::move(model);
  question.cluster = H100(gpus);
  question.batch = {.global_batch_size = 2048, .seq_len = 8192};
  question.numerics.precision = Precision::kBf16;
  question.engine = WeftProfile();
  return question;
}

Question Model405b(int64_t gpus) {
  return QuestionOf(Llama3(126, 16384, 128, 53248), static_cast<int>(gpus));
}

void Count(benchmark::State& state, const SearchCounts& counts) {
  state.counters["layouts"] = static_cast<double>(counts.points);
  state.counters["priced"] = static_cast<double>(counts.evaluated);
  state.counters["cut_by_time"] = static_cast<double>(counts.cut_by_time);
  state.counters["cut_by_memory"] = static_cast<double>(counts.cut_by_memory);
}

void SearchLattice405b(benchmark::State& state) {
  const Question question = Model405b(state.range(0));
  SearchCounts counts;
  for (auto _ : state) {
    const Space space(question, {}, Purpose::kEstimate);
    Pricer pricer(question);
    const Finds finds = SearchLattice(space, pricer, Cut::kByBounds);
    benchmark::DoNotOptimize(finds.fitting.data());
    counts = finds.counts;
  }
  Count(state, counts);
}
BENCHMARK(SearchLattice405b)->Arg(16384)->Arg(100'000)->Arg(131072)->Unit(benchmark::kMillisecond);

void TimePlan(benchmark::State& state, const Question& question) {
  SearchCounts counts;
  for (auto _ : state) {
    const absl::StatusOr<Plan> plan = FindPlan(question, {}, Purpose::kEstimate);
    CHECK(plan.ok());
    counts = plan->counts;
    state.SetLabel(LayoutText(plan->layout));
  }
  Count(state, counts);
  state.counters["replayed"] = static_cast<double>(counts.replayed);
}

void FindPlan405b(benchmark::State& state) {
  TimePlan(state, Model405b(state.range(0)));
}
BENCHMARK(FindPlan405b)->Arg(16384)->Arg(100'000)->Arg(131072)->Unit(benchmark::kMillisecond);

void FindPlan8b(benchmark::State& state) {
  TimePlan(state, QuestionOf(Llama3(32, 4096, 32, 14336), static_cast<int>(state.range(0))));
}
BENCHMARK(FindPlan8b)->Arg(8)->Arg(1024)->Unit(benchmark::kMillisecond);

void FindPlanMixtral(benchmark::State& state) {
  TimePlan(state, QuestionOf(Mixtral(), static_cast<int>(state.range(0))));
}
BENCHMARK(FindPlanMixtral)->Arg(16)->Arg(128)->Arg(1024)->Unit(benchmark::kMillisecond);

void FindPlanQwen3Moe(benchmark::State& state) {
  TimePlan(state, QuestionOf(Qwen3Moe(), static_cast<int>(state.range(0))));
}
BENCHMARK(FindPlanQwen3Moe)->Arg(128)->Arg(1024)->Arg(16384)->Unit(benchmark::kMillisecond);

void FindPlanDeepseekV3(benchmark::State& state) {
  TimePlan(state, QuestionOf(DeepseekV3(), static_cast<int>(state.range(0))));
}
BENCHMARK(FindPlanDeepseekV3)->Arg(256)->Arg(2048)->Arg(16384)->Unit(benchmark::kMillisecond);

// Nodes of 8 GPUs that are so many times as fast as H100s and have so much memory.
Cluster Kind(const char* name, double speed, int64_t memory_bytes) {
  Cluster cluster = H100(256);
  cluster.name = name;
  cluster.device.memory_bytes = memory_bytes;
  cluster.device.peak_flops_per_s = {67e12 * speed, 989e12 * speed, 0};
  cluster.device.peak_memory_bytes_per_s *= speed;
  return cluster;
}

// Three kinds of 256 devices each; with the searches for each kind alone.
void FindMixed(benchmark::State& state, const ModelShape& model) {
  JobSpec job;
  job.model = model;
  job.training.seq_len = 8192;
  job.training.global_batch_size = 1024;
  job.training.mixed_precision = Precision::kBf16;
  const Cluster parts[] = {H100(256), Kind("a", 0.32, int64_t{79} << 30),
                           Kind("b", 0.15, int64_t{23} << 30)};
  for (auto _ : state) {
    const absl::StatusOr<MixedAnswer> answer = FindMixedPlan(job, parts);
    CHECK(answer.ok());
    state.SetLabel(LayoutText(answer->plan.layout));
    state.counters["priced"] = static_cast<double>(answer->priced);
  }
}
BENCHMARK_CAPTURE(FindMixed, 8b, Llama3(32, 4096, 32, 14336))->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(FindMixed, 70b, Llama3(80, 8192, 64, 28672))->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace weft

BENCHMARK_MAIN();
