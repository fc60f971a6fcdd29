// Times and bytes of models whose blocks are not all alike, or whose feed-forward is not one: dense
// blocks before experts, shared experts, experts cut by degrees of their own, stages without
// blocks.
#include <gtest/gtest.h>

#include <string>

#include "plan/block/tensors.h"
#include "plan/estimate/memory_estimate.h"
#include "plan/estimate/model_flops.h"
#include "plan/estimate/pass_cost.h"
#include "plan/estimate/step_estimate.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/estimate/sample_questions.h"

namespace weft {
namespace {

Question OnH100(const ModelShape& model) {
  Question question = QuestionAbout(model, 4096, "megatron", Precision::kBf16);
  DeviceProfile& device = question.cluster.device;
  device.backend = BackendKind::kCuda;
  device.peak_flops_per_s.bf16 = 989e12;
  device.peak_memory_bytes_per_s = 3.35e12;
  device.compute_units = 132;
  question.cluster.intra_node = {.latency_s = 2e-6, .bytes_per_s = 380e9};
  question.cluster.inter_node = {.latency_s = 1e-5, .bytes_per_s = 45e9};
  question.batch.global_batch_size = 64;
  return question;
}

double BlockSeconds(const Question& question, const Layout& layout) {
  return BlockPass(question, layout, Recompute::kNone).total_s();
}

TEST(SparseModels, StepsAreOfTheBlocksThatAStageHolds) {
  const Question question = OnH100(DeepseekV3());
  Question dense = question;
  dense.model = OfDenseBlocks(question.model);
  const Layout layout = {.dp = 8, .tp = 8, .gradient_accumulation_steps = 8, .ep = 8};
  const TermSeconds step = EstimateStep(question, layout);
  const double blocks_s = 58 * BlockSeconds(question, layout) + 3 * BlockSeconds(dense, layout);
  const double ends_s =
      EmbeddingPass(question, layout).total_s() + HeadPass(question, layout).total_s();
  double passes_s = 0;
  for (const TimeTerm term : {TimeTerm::kMatmul, TimeTerm::kAttention, TimeTerm::kStreaming,
                              TimeTerm::kOverhead, TimeTerm::kTensorComm, TimeTerm::kExpertComm}) {
    passes_s += step.of(term);
  }
  EXPECT_NEAR(passes_s, 8 * (blocks_s + ends_s), 0.01 * passes_s);
  EXPECT_GT(step.of(TimeTerm::kExpertComm), 0);
}

// Three dense blocks, which here take less, over all places of the stages' borders.
TEST(SparseModels, ClosedFormsAreBoundsOfTheReplayWhereTheFirstBlocksAreDense) {
  const Question question = OnH100(DeepseekV3());
  int cases = 0;
  for (const int pp : {2, 4, 16, 61}) {
    for (const int chunks : {1, 2, 3}) {
      if (pp * chunks > 61) continue;
      const Layout layout = {.dp = 8,
                             .pp = pp,
                             .pp_schedule = chunks > 1 ? ScheduleKind::kInterleaved
                                                       : ScheduleKind::kOneForwardOneBackward,
                             .gradient_accumulation_steps = 2 * pp,
                             .virtual_stages = chunks,
                             .ep = 8};
      const double closed_s = EstimateStep(question, layout).total_s();
      const absl::StatusOr<TermSeconds> replay = ReplayStep(question, layout);
      ASSERT_TRUE(replay.ok()) << replay.status();
      EXPECT_LE(closed_s, replay->total_s() * (1 + 1e-9)) << LayoutText(layout);
      EXPECT_GE(closed_s, 0.8 * replay->total_s()) << LayoutText(layout);
      ++cases;
    }
  }
  EXPECT_GE(cases, 9);
}

TEST(SparseModels, ExpertsOfTheirOwnDegreeMoveEachRanksTokensOnly) {
  Question question = OnH100(Mixtral());
  const auto cost = [&](int etp, int ep) {
    const Layout layout = {.dp = 8, .tp = 8, .ep = ep, .etp = etp, .sequence_parallel = true};
    return BlockPass(question, layout, Recompute::kNone);
  };
  // Nothing is gathered for experts that no two ranks share: less moves over tp.
  EXPECT_LT(cost(1, 8).forward.of(TimeTerm::kTensorComm),
            cost(8, 8).forward.of(TimeTerm::kTensorComm));
  // Eight experts on the ranks of one node talk inside it; on every eighth rank they do not.
  EXPECT_LT(cost(1, 8).forward.of(TimeTerm::kExpertComm),
            cost(8, 8).forward.of(TimeTerm::kExpertComm) / 2);
  // A router that is not balanced makes the fullest rank slower.
  const double balanced_s = cost(1, 8).total_s();
  question.model.expert_imbalance = 1.5;
  EXPECT_GT(cost(1, 8).total_s(), 1.1 * balanced_s);
}

TEST(SparseModels, LatentAttentionWorksOnLessThanItsHeadsWouldSay) {
  const ModelShape latent = OfDenseBlocks(DeepseekV3());
  ModelShape plain = latent;
  plain.latent = {};
  const Layout layout;
  EXPECT_LT(BlockPass(OnH100(latent), layout, Recompute::kNone).forward.of(TimeTerm::kMatmul),
            BlockPass(OnH100(plain), layout, Recompute::kNone).forward.of(TimeTerm::kMatmul));
  // Queries and keys of 192, values of 128, instead of 192 for all.
  const double ratio =
      BlockPass(OnH100(latent), layout, Recompute::kNone).forward.of(TimeTerm::kAttention) /
      BlockPass(OnH100(plain), layout, Recompute::kNone).forward.of(TimeTerm::kAttention);
  EXPECT_NEAR(ratio, (192 + 128) / (2 * 192.0), 1e-9);
}

// 6 flops a parameter of matrix products and token, for those that a token passes.
TEST(SparseModels, FlopsAreOfTheParametersThatATokenPasses) {
  for (const ModelShape& model : {DeepseekV3(), Qwen30bA3b(), Nemotron340b(), Mixtral()}) {
    Question question = OnH100(model);
    question.batch.seq_len = 1;
    const double table =
        static_cast<double>(model.vocab_size) * static_cast<double>(model.hidden_size);
    const double active = static_cast<double>(ActiveParameterCount(model)) - table;
    EXPECT_NEAR(ModelFlopsPerToken(question) / (6 * active), 1, 2e-3);
  }
}

TEST(SparseModels, ExpertsShareAPlaceholderGradientAndHaveWorkspacesOfTheirOwn) {
  Question question = OnH100(DeepseekV3());
  const Layout layout = {.dp = 8, .pp = 8, .zero_stage = 1, .ep = 8};
  const auto bytes = [&](int stage) {
    return static_cast<double>(BytesBetweenSteps(question, layout, stage));
  };
  question.engine.memory.keeps_placeholder_gradients = false;
  const double without = bytes(4);
  question.engine.memory.keeps_placeholder_gradients = true;
  const double h = 7168;
  const double attention = 1536 * h + 24576 * 1536.0 + 576 * h + 32768 * 512.0 + h * 16384;
  const double expert = 3 * h * 2048;  // the shared one is of the same shape
  EXPECT_EQ(bytes(4) - without, 2 * (attention + expert));
  question.engine.memory.grouped_workspace_bytes = 0;
  EXPECT_EQ(bytes(4) - without, 2 * (attention + expert) - 4 * 32 * 1024.0 * 1024);
}

TEST(SparseModels, AStageMayHoldAnEndOfTheNetworkAndNoBlocks) {
  const Question question = OnH100(Llama70b());
  Layout layout = {.dp = 1, .pp = 10, .gradient_accumulation_steps = 64};
  layout.layers_per_stage = {0, 10, 10, 10, 10, 10, 10, 10, 10, 0};
  EXPECT_TRUE(CheckLayout(question.model, question.cluster, question.batch, layout).ok())
      << CheckLayout(question.model, question.cluster, question.batch, layout);
  ASSERT_FALSE(EngineIssues(question.model, layout).empty());
  EXPECT_EQ(EngineIssues(question.model, layout)[0].key, "parallelism.layers_per_stage");
  const absl::StatusOr<TermSeconds> step = ReplayStep(question, layout);
  ASSERT_TRUE(step.ok()) << step.status();
  EXPECT_TRUE(step->total_s() > 0 && step->total_s() < 1e6) << step->total_s();
  Layout even = layout;
  even.layers_per_stage = {7, 8, 8, 9, 8, 8, 8, 8, 8, 8};
  const auto total = [&](int stage, const Layout& of) {
    return EstimateStageMemory(question, of, stage).total_bytes();
  };
  EXPECT_LT(total(0, layout), total(0, even));
  EXPECT_LT(total(9, layout), total(9, even));
  EXPECT_GT(total(1, layout), total(1, even));
  for (const char* engine : {"weft", "pytorch-fsdp", "megatron-deepspeed"}) {
    Question other = question;
    other.engine = EngineProfileNamed(engine).value();
    for (const int zero : {1, 2, 3}) {
      layout.dp = 2;
      layout.zero_stage = zero;
      layout.gradient_accumulation_steps = 32;
      const double step_s = EstimateStep(other, layout).total_s();
      EXPECT_TRUE(step_s > 0 && step_s < 1e6) << engine << " zero " << zero << ": " << step_s;
    }
  }
  layout.layers_per_stage = {10, 10, 10, 10, 0, 10, 10, 10, 10, 0};
  EXPECT_FALSE(CheckLayout(question.model, question.cluster, question.batch, layout).ok());
}

TEST(SparseModels, RaggedRoundsArePlannedAndNotRun) {
  const Question question = OnH100(Llama70b());
  const Layout layout = {.dp = 1,
                         .pp = 4,
                         .pp_schedule = ScheduleKind::kInterleaved,
                         .gradient_accumulation_steps = 5,
                         .virtual_stages = 5};
  const BatchShape batch = {.global_batch_size = 5, .seq_len = 4096};
  EXPECT_TRUE(CheckLayout(question.model, question.cluster, batch, layout).ok());
  ASSERT_EQ(EngineIssues(question.model, layout).size(), 1u);
  EXPECT_EQ(EngineIssues(question.model, layout)[0].key, "parallelism.pp_schedule");
  EXPECT_TRUE(ReplayStep(question, layout).ok());
  EXPECT_LE(EstimateStep(question, layout).total_s(),
            ReplayStep(question, layout)->total_s() * (1 + 1e-9));
}

}  // namespace
}  // namespace weft
