#include "plan/spec/fp8.h"

#include <gtest/gtest.h>

#include "plan/memory/memory.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

ModelShape Llama() {
  return {.architecture = Architecture::kLlama,
          .vocab_size = 1000,
          .hidden_size = 256,
          .num_blocks = 2,
          .num_heads = 8,
          .num_kv_heads = 2,
          .head_dim = 32,
          .ffn_size = 704,
          .max_positions = 64};
}

TEST(Fp8LayersOf, TakesWhatIsAMultipleOf16OnEveryRank) {
  const BatchShape batch{.global_batch_size = 8, .seq_len = 64};
  const struct {
    Layout layout;
    bool query, key, mlp;
  } cases[] = {
      {{}, true, true, true},
      {{.tp = 2}, true, true, true},
      {{.tp = 4}, true, true, true},     // key heads are there twice: one on each rank
      {{.tp = 8}, true, true, false},    // 704 / 8 = 88
      {{.cp = 8}, false, false, false},  // 8 tokens
      {{.cp = 8, .micro_batch_size = 2}, true, true, true},
  };
  for (const auto& c : cases) {
    const Fp8Layers layers = Fp8LayersOf(Llama(), batch, c.layout);
    EXPECT_EQ(layers.query, c.query) << LayoutText(c.layout);
    EXPECT_EQ(layers.key, c.key) << LayoutText(c.layout);
    EXPECT_EQ(layers.mlp, c.mlp) << LayoutText(c.layout);
  }
  ModelShape odd = Llama();
  odd.hidden_size = 264;
  EXPECT_FALSE(Fp8LayersOf(odd, batch, {}).any());
}

Fp8BlockShape ShapeOf(const Fp8Layers& layers) {
  return {.layers = layers,
          .tokens = 64,
          .hidden = 256,
          .query = 512,
          .key = 32,
          .ffn = 704,
          .has_gate = true};
}

TEST(Fp8ScratchOf, HasRoomForTheLargestProductOnly) {
  const Fp8Scratch all = Fp8ScratchOf(ShapeOf({true, true, true}), false);
  EXPECT_EQ(all.input, 64 * 704);  // of down
  EXPECT_EQ(all.gradient, 64 * 704);
  EXPECT_EQ(all.weight, 256 * 704);
  EXPECT_EQ(all.scales, 3);
  const Fp8Scratch attention = Fp8ScratchOf(ShapeOf({true, true, false}), false);
  EXPECT_EQ(attention.input, 64 * 512);  // of o
  EXPECT_EQ(attention.gradient, 64 * 512);
  EXPECT_EQ(attention.weight, 256 * 512);
  const Fp8Scratch without_weights = Fp8ScratchOf(ShapeOf({true, true, true}), true);
  EXPECT_EQ(without_weights.gradient, 64 * 704);
  EXPECT_EQ(without_weights.weight, 0);
  EXPECT_EQ(without_weights.scales, 2);
  EXPECT_EQ(Fp8ScratchOf(ShapeOf({}), false).scales, 0);
}

TEST(Fp8WeightsOf, CountsAllOfABlock) {
  const Fp8Weights all = Fp8WeightsOf(ShapeOf({true, true, true}));
  EXPECT_EQ(all.elements, 256 * (2 * 512 + 2 * 32 + 3 * 704));
  EXPECT_EQ(all.count, 7);
  Fp8BlockShape fused = ShapeOf({true, true, true});
  fused.is_qkv_one = fused.is_gate_up_one = true;
  EXPECT_EQ(Fp8WeightsOf(fused).elements, all.elements);
  EXPECT_EQ(Fp8WeightsOf(fused).count, 4);
  EXPECT_EQ(Fp8ScratchOf(fused, false).gradient, 64 * 2 * 704);
  EXPECT_EQ(Fp8ScratchOf(fused, false).weight, 256 * 2 * 704);
  fused.layers = {.query = true, .key = true};
  EXPECT_EQ(Fp8ScratchOf(fused, false).weight, 256 * (512 + 2 * 32));
  fused.layers = {.query = true};
  EXPECT_EQ(Fp8WeightsOf(fused).count, 2);
  fused.layers = {.key = true};
  EXPECT_EQ(Fp8WeightsOf(fused).elements, 2 * 256 * 32);
  Fp8BlockShape no_gate = ShapeOf({.mlp = true});
  no_gate.has_gate = false;
  EXPECT_EQ(Fp8WeightsOf(no_gate).elements, 256 * 2 * 704);
  EXPECT_EQ(Fp8WeightsOf(no_gate).count, 2);
}

// But for ZeRO 3, whose weights are whole for moments only, a block's two orientations are kept.
TEST(PlanRankMemory, Fp8TakesItsScratchAndItsCodesBesideBf16) {
  const BatchShape batch{.global_batch_size = 8, .seq_len = 64};
  const int64_t weights = 256 * (2 * 256 + 2 * 64 + 3 * 704);
  for (const int zero_stage : {0, 1, 2, 3}) {
    const bool keeps = zero_stage < 3;
    const Layout layout{.dp = 2, .zero_stage = zero_stage, .gradient_accumulation_steps = 4};
    const auto bytes = [&](Precision precision, MemoryKind kind) {
      return PlanRankMemory(Llama(), batch, layout, 0, {.precision = precision}).bytes(kind);
    };
    for (int kind = 0; kind <= static_cast<int>(MemoryKind::kTokens); ++kind) {
      const auto of = static_cast<MemoryKind>(kind);
      int64_t more = 0;
      if (of == MemoryKind::kWorkspace) more = 5 * 64 * 704 + 64 + (keeps ? 0 : 2 * 256 * 704);
      if (of == MemoryKind::kWeights && keeps) more = 2 * (2 * weights + 64);  // of two blocks
      EXPECT_EQ(bytes(Precision::kFp8, of), bytes(Precision::kBf16, of) + more)
          << zero_stage << " " << WordOf(of);
    }
  }
}

}  // namespace
}  // namespace weft
