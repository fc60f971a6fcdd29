#include "plan/spec/fp8.h"

#include <gtest/gtest.h>

#include "plan/memory/memory.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

ModelShape Llama() {
  return {.family = ModelFamily::kLlama,
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

TEST(Fp8ScratchOf, HasRoomForTheLargestProductOnly) {
  const Fp8Scratch all = Fp8ScratchOf({true, true, true}, 64, 256, 512, 32, 704);
  EXPECT_EQ(all.input, 64 * 704);  // of down
  EXPECT_EQ(all.gradient, 64 * 704);
  EXPECT_EQ(all.weight, 256 * 704);
  EXPECT_EQ(all.scales, 3);
  const Fp8Scratch attention = Fp8ScratchOf({true, true, false}, 64, 256, 512, 32, 704);
  EXPECT_EQ(attention.input, 64 * 512);  // of o
  EXPECT_EQ(attention.gradient, 64 * 512);
  EXPECT_EQ(attention.weight, 256 * 512);
  EXPECT_EQ(Fp8ScratchOf({}, 64, 256, 512, 32, 704).scales, 0);
}

TEST(PlanRankMemory, Fp8TakesItsScratchBesideBf16) {
  const BatchShape batch{.global_batch_size = 8, .seq_len = 64};
  const auto bytes = [&](Precision precision, MemoryKind kind) {
    return PlanRankMemory(Llama(), batch, {.gradient_accumulation_steps = 8}, 0,
                          {.precision = precision})
        .bytes(kind);
  };
  for (int kind = 0; kind <= static_cast<int>(MemoryKind::kTokens); ++kind) {
    const auto of = static_cast<MemoryKind>(kind);
    const int64_t scratch = of == MemoryKind::kWorkspace ? 3 * 64 * 704 + 256 * 704 + 64 : 0;
    EXPECT_EQ(bytes(Precision::kFp8, of), bytes(Precision::kBf16, of) + scratch) << WordOf(of);
  }
}

}  // namespace
}  // namespace weft
