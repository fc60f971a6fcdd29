// Questions that nobody should ask, and machines without end: the time model answers with finite,
// non-negative terms.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "plan/estimate/step_estimate.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

int64_t OneOf(std::mt19937_64& random, const std::vector<int64_t>& values) {
  return values[random() % values.size()];
}

Question WildQuestion(std::mt19937_64& random) {
  Question question;
  ModelShape& model = question.model;
  const bool llama = random() % 2 == 0;
  SetArchitecture(llama ? Architecture::kLlama : Architecture::kGpt2, model);
  model.num_heads = OneOf(random, {1, 7, 12, 64, 128});
  model.num_kv_heads = llama && random() % 2 == 0 ? 1 : model.num_heads;
  model.head_dim = OneOf(random, {2, 64, 128, 226});
  model.hidden_size = model.num_heads * model.head_dim;
  model.num_blocks = OneOf(random, {1, 2, 61, 126, 1000});
  model.ffn_size = OneOf(random, {1, 97, 4096, 53248});
  model.vocab_size = OneOf(random, {2, 50257, 128256});
  model.max_positions = int64_t{1} << 20;
  model.tied_embeddings = random() % 2 == 0;
  if (llama && random() % 4 == 0) {
    model.num_experts = 8;
    model.experts_per_token = 2;
    model.expert_ffn_size = 1408;
  }
  question.batch = {.global_batch_size = 4096, .seq_len = OneOf(random, {1, 127, 4096, 1 << 20})};
  Cluster& cluster = question.cluster;
  cluster = SampleCluster();
  cluster.nodes = static_cast<int>(OneOf(random, {1, 3, 12500}));
  cluster.slots_per_node = static_cast<int>(OneOf(random, {1, 7, 8}));
  cluster.cores_per_node = 0;
  const bool gpu = random() % 4 != 0;
  cluster.device.backend = gpu ? BackendKind::kCuda : BackendKind::kCpu;
  cluster.device.compute_units = gpu ? static_cast<int>(OneOf(random, {0, 1, 132})) : 0;
  cluster.device.peak_flops_per_s = {1e12, 1e15, 2e15};
  cluster.device.peak_memory_bytes_per_s = static_cast<double>(OneOf(random, {1, 1000000000000}));
  cluster.intra_node.bytes_per_s = static_cast<double>(OneOf(random, {1, 400000000000}));
  cluster.inter_node.bytes_per_s = static_cast<double>(OneOf(random, {1, 50000000000}));
  question.numerics.precision = random() % 2 == 0 ? Precision::kBf16 : Precision::kFp32;
  const std::vector<std::string> engines = EngineProfileNames();
  question.engine = *EngineProfileNamed(engines[random() % engines.size()]);
  if (random() % 8 == 0) question.adapters = LowRankAdapters{.rank = 16};
  return question;
}

Layout WildLayout(std::mt19937_64& random) {
  Layout layout;
  layout.tp = static_cast<int>(OneOf(random, {1, 1, 2, 7, 8}));
  layout.pp = static_cast<int>(OneOf(random, {1, 2, 61, 126}));
  layout.dp = static_cast<int>(OneOf(random, {1, 2, 8, 1024}));
  layout.cp = static_cast<int>(OneOf(random, {1, 1, 2}));
  layout.ep = layout.dp >= 8 ? static_cast<int>(OneOf(random, {1, 8})) : 1;
  layout.micro_batch_size = OneOf(random, {1, 2});
  layout.gradient_accumulation_steps = 4096 / layout.dp / layout.micro_batch_size;
  layout.zero_stage = static_cast<int>(random() % 4);
  layout.sequence_parallel = layout.tp > 1 && random() % 2 == 0;
  layout.recompute = static_cast<Recompute>(random() % 3);
  if (random() % 8 == 0) layout.offload_optimizer = OffloadDevice::kCpu;
  return layout;
}

TEST(WildQuestions, AreAnsweredWithFiniteTerms) {
  std::mt19937_64 random(7);
  int answered = 0;
  for (int i = 0; i < 20000; ++i) {
    const Question question = WildQuestion(random);
    const Layout layout = WildLayout(random);
    if (!CheckModel(question.model).ok()) continue;
    if (!CheckLayout(question.model, question.cluster, question.batch, layout).ok()) continue;
    const TermSeconds time = EstimateStep(question, layout);
    for (size_t term = 0; term < kTimeTerms; ++term) {
      ASSERT_TRUE(std::isfinite(time.seconds[term]) && time.seconds[term] >= 0)
          << WordOf(static_cast<TimeTerm>(term)) << " " << time.seconds[term] << " of "
          << LayoutText(layout) << " with " << question.engine.name;
    }
    ASSERT_GT(time.total_s(), 0) << LayoutText(layout);
    ++answered;
  }
  EXPECT_GT(answered, 500);
}

TEST(WildQuestions, AFasterMachineIsNeverSlower) {
  std::mt19937_64 random(8);
  int compared = 0;
  for (int i = 0; i < 20000; ++i) {
    const Question question = WildQuestion(random);
    const Layout layout = WildLayout(random);
    if (!CheckModel(question.model).ok()) continue;
    if (!CheckLayout(question.model, question.cluster, question.batch, layout).ok()) continue;
    Question faster = question;
    switch (i % 4) {
      case 0:
        faster.cluster.device.peak_flops_per_s = {2e12, 2e15, 4e15};
        break;
      case 1:
        faster.cluster.device.peak_memory_bytes_per_s *= 1.5;
        break;
      case 2:
        faster.cluster.intra_node.bytes_per_s *= 3;
        break;
      default:
        faster.cluster.inter_node.bytes_per_s *= 3;
    }
    const double before_s = EstimateStep(question, layout).total_s();
    EXPECT_LE(EstimateStep(faster, layout).total_s(), before_s * (1 + 1e-9))
        << LayoutText(layout) << " with " << question.engine.name << ", change " << i % 4;
    ++compared;
  }
  EXPECT_GT(compared, 500);
}

// On which the search rests where it does not price ZeRO 2 (plan/search/lattice.cc).
TEST(WildQuestions, ZeroTwoNeverTakesLessThanZeroOne) {
  std::mt19937_64 random(9);
  int compared = 0;
  int longer = 0;
  for (int i = 0; i < 20000; ++i) {
    const Question question = WildQuestion(random);
    Layout layout = WildLayout(random);
    layout.zero_stage = 1;
    if (!CheckModel(question.model).ok()) continue;
    if (!CheckLayout(question.model, question.cluster, question.batch, layout).ok()) continue;
    const double one_s = EstimateStep(question, layout).total_s();
    layout.zero_stage = 2;
    const double two_s = EstimateStep(question, layout).total_s();
    EXPECT_GE(two_s, one_s * (1 - 1e-9)) << LayoutText(layout) << " with " << question.engine.name;
    longer += two_s > one_s ? 1 : 0;
    ++compared;
  }
  EXPECT_GT(compared, 500);
  EXPECT_GT(longer, 100);
}

}  // namespace
}  // namespace weft
