#include "plan/estimate/activation_bytes.h"

#include <gtest/gtest.h>

#include <cmath>

#include "plan/schedule/schedule.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/estimate/sample_questions.h"

namespace weft {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// Eager attention with dropout, as Korthikanti et al. count.
Question OfThePaper(const ModelShape& model, int64_t seq_len) {
  Question question = QuestionAbout(model, seq_len, "megatron", Precision::kFp16);
  question.engine.memory.fused_attention = false;
  question.engine.memory.dropout = true;
  return question;
}

// Per block, one sequence of 2048, tp 8: Korthikanti et al., arXiv:2205.05198, table 2 applied to
// its models. Norm statistics, which the paper leaves out, are 16 bytes a token.
TEST(BlockActivationBytes, AreThoseOfThePaper) {
  const struct {
    const char* name;
    int64_t hidden, heads;
    double tensor, sequence, selective, full;  // MiB
  } cases[] = {
      {"22B", 6144, 64, 316, 211, 51, 24},
      {"175B", 12288, 96, 552, 342, 102, 48},
      {"530B", 20480, 128, 840, 490, 170, 80},
      {"1T", 25600, 160, 1050, 612.5, 212.5, 100},
  };
  for (const auto& c : cases) {
    const Question question = OfThePaper(Gpt2Of(48, c.hidden, c.heads, 51200, 2048), 2048);
    const auto saved_mib = [&](bool sequence_parallel, Recompute recompute) {
      const Layout layout = {.tp = 8, .sequence_parallel = sequence_parallel};
      return BlockActivationBytes(question, layout, recompute).saved / kMiB;
    };
    EXPECT_NEAR(saved_mib(false, Recompute::kNone), c.tensor, 0.55) << c.name;
    EXPECT_NEAR(saved_mib(true, Recompute::kNone), c.sequence, 0.55) << c.name;
    EXPECT_NEAR(saved_mib(true, Recompute::kSelective), c.selective, 0.55) << c.name;
    EXPECT_EQ(saved_mib(false, Recompute::kFull), c.full) << c.name;
  }
}

// The same worked example: 512 * 768 * 12 * (10 + 24 + 5 * 12 * 512 / 768) bytes per sequence.
TEST(BlockActivationBytes, OfTheWorkedExampleAre349MegabytesPerSequence) {
  const Question question = OfThePaper(Gpt2Of(12, 768, 12, 40512, 512), 512);
  const BlockFootprint block = BlockActivationBytes(question, Layout{}, Recompute::kNone);
  const double statistics = 16.0 * 512;  // the example has none
  const double sequence = 12 * (block.saved - statistics);
  EXPECT_EQ(sequence, 512.0 * 768 * 12 * (10 + 24 + 5.0 * 12 * 512 / 768));
  EXPECT_EQ(std::floor(sequence / 1e6), 349);
  // 64 sequences beside 2,940 MB of states.
  EXPECT_EQ(2940 + 64 * std::floor(sequence / 1e6), 25'276);
}

TEST(BlockActivationBytes, NeverLoseWhatRecomputeLeavesOut) {
  for (const char* engine : {"weft", "megatron", "pytorch-eager"}) {
    const Question question = QuestionAbout(Llama70b(), 4096, engine, Precision::kBf16);
    const double all = BlockActivationBytes(question, Layout{}, Recompute::kNone).saved;
    double last = all;
    for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
      const BlockFootprint block = BlockActivationBytes(question, Layout{}, mode);
      EXPECT_DOUBLE_EQ(block.saved + block.recomputed, all) << engine << WordOf(mode);
      EXPECT_LE(block.saved, last) << engine << WordOf(mode);
      last = block.saved;
    }
  }
}

TEST(BlockActivationBytes, AreCutByContextAndSequenceParallelism) {
  const Question question = QuestionAbout(Llama70b(), 8192, "megatron", Precision::kBf16);
  const double whole = BlockActivationBytes(question, Layout{}, Recompute::kNone).saved;
  EXPECT_DOUBLE_EQ(BlockActivationBytes(question, {.cp = 4}, Recompute::kNone).saved, whole / 4);
  const Layout both = {.tp = 8, .sequence_parallel = true};
  EXPECT_DOUBLE_EQ(BlockActivationBytes(question, both, Recompute::kNone).saved, whole / 8);
}

TEST(BlockActivationBytes, GrowWithTheExpertsPerTokenButForTheRouterNotWithTheirNumber) {
  ModelShape model = Mixtral();
  const auto saved = [&] {
    const Question question = QuestionAbout(model, 4096, "megatron", Precision::kBf16);
    return BlockActivationBytes(question, Layout{}, Recompute::kNone).saved;
  };
  const double two_of_eight = saved();
  model.num_experts = 64;
  EXPECT_EQ(saved() - two_of_eight, 4096 * 8.0 * (64 - 8));  // logits and shares, fp32
  model.experts_per_token = 4;
  EXPECT_GT(saved(), 1.5 * two_of_eight);
}

// Per token, in 16 bits but where it says fp32.
TEST(BlockActivationBytes, OfLatentAttentionAreWhatItsProductsAndNormsTake) {
  const ModelShape dense = OfDenseBlocks(DeepseekV3());
  const double h = 7168, heads = 128, ffn = 18432;
  const double low = 2 * (1536 + 1536) + 2 * (512 + 64 + 512) + 8;  // in and out of its norms
  const double attended = 2 * heads * (192 + 192 + 128 + 128) + 4 * heads;  // q k v out, sums
  const double norms = 2 * 4 * h + 2 * 4;
  const double feed_forward = 2 * 3 * ffn;
  const Question question = QuestionAbout(dense, 4096, "megatron", Precision::kBf16);
  EXPECT_DOUBLE_EQ(BlockActivationBytes(question, Layout{}, Recompute::kNone).saved,
                   4096 * (low + attended + norms + feed_forward));
  // tp cuts heads and the feed-forward, sequence parallelism what is of whole tokens.
  const Layout cut = {.tp = 4, .sequence_parallel = true};
  EXPECT_DOUBLE_EQ(BlockActivationBytes(question, cut, Recompute::kNone).saved,
                   4096 / 4 * (low + attended + norms + feed_forward));
}

// A rank's experts get the copies of the ranks that share them: more with a larger etp.
TEST(BlockActivationBytes, OfExpertsAreOfTheTokensThatTheirRanksGather) {
  ModelShape model = DeepseekV3();
  const auto saved = [&](int etp) {
    const Question question = QuestionAbout(model, 4096, "megatron", Precision::kBf16);
    const Layout layout = {.tp = 8, .ep = 8, .etp = etp, .sequence_parallel = true};
    return BlockActivationBytes(question, layout, Recompute::kNone).saved;
  };
  const double copies = 4096.0 / 8 * 8;  // tokens of a rank x top-8
  const double inner = 2 * 3 * 2048;
  const double routed = 2 * 7168 + 4;
  EXPECT_DOUBLE_EQ(saved(2) - saved(1), copies * routed);
  EXPECT_DOUBLE_EQ(saved(8) - saved(1), 7 * copies * routed);
  const double balanced = saved(1);
  model.expert_imbalance = 1.5;
  EXPECT_DOUBLE_EQ(saved(1) - balanced, copies / 2 * (routed + inner));
}

TEST(HeadActivationBytes, AreDividedByItsChunks) {
  const Question question = QuestionAbout(Llama70b(), 4096, "megatron", Precision::kBf16);
  const double whole = HeadActivationBytes(question, Layout{}).logits;
  EXPECT_EQ(whole, 6.0 * 4096 * 128256);
  EXPECT_EQ(HeadActivationBytes(question, {.head_chunk_tokens = 512}).logits, whole / 8);
}

TEST(InFlightOf, IsWhatTheScheduleItselfHolds) {
  ModelShape model = Llama70b();
  model.num_blocks = 48;
  const Question question = QuestionAbout(model, 4096, "megatron", Precision::kBf16);
  for (const ScheduleKind schedule : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                      ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleH1}) {
    for (const int pp : {2, 4, 8}) {
      for (const int64_t microbatches : {8, 16, 32}) {
        const int chunks = schedule == ScheduleKind::kInterleaved ? 3 : 1;
        const Layout layout = {.pp = pp,
                               .pp_schedule = schedule,
                               .gradient_accumulation_steps = microbatches,
                               .virtual_stages = chunks};
        for (int stage = 0; stage < pp; ++stage) {
          const int live = PeakLiveMicrobatches(ComputeOrder(
              schedule, stage, pp, static_cast<int>(microbatches), layout.virtual_stages));
          const InFlight held = InFlightOf(question, layout, stage);
          EXPECT_DOUBLE_EQ(held.block_passes + held.pending, live * 48.0 / pp / chunks)
              << LayoutText(layout) << " stage " << stage;
        }
      }
    }
  }
}

// The factor of Narayanan et al., SC'21, 2.2.2: 1 + (p - 1) / (p v) of a 1F1B first stage.
TEST(InFlightOf, OfInterleavedStagesIsThePapersFactor) {
  const Question question =
      QuestionAbout(Gpt2Of(96, 12288, 96, 51200, 2048), 2048, "megatron", Precision::kFp16);
  const Layout layout = {.pp = 8,
                         .pp_schedule = ScheduleKind::kInterleaved,
                         .gradient_accumulation_steps = 64,
                         .virtual_stages = 3};
  EXPECT_DOUBLE_EQ(InFlightOf(question, layout, 0).block_passes, 96 * (1 + 7.0 / 24));
}

}  // namespace
}  // namespace weft
