#include "plan/shards/fused_linears.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "plan/memory/memory.h"
#include "plan/shards/buckets.h"
#include "plan/spec/fp8.h"

namespace weft {
namespace {

ModelShape GptOf(int64_t hidden, int64_t heads) {
  ModelShape model = {.vocab_size = 96,
                      .hidden_size = hidden,
                      .num_blocks = 2,
                      .num_heads = heads,
                      .num_kv_heads = heads,
                      .head_dim = hidden / heads,
                      .ffn_size = 4 * hidden,
                      .max_positions = 16};
  SetArchitecture(Architecture::kGpt2, model);
  return model;
}

ModelShape LlamaOf(int64_t ffn_size) {
  ModelShape model = GptOf(32, 4);
  SetArchitecture(Architecture::kLlama, model);
  model.num_kv_heads = 2;
  model.ffn_size = ffn_size;
  return model;
}

ModelShape WithHeadNorms(ModelShape model) {
  model.qk_norms = true;
  return model;
}

struct FusedCase {
  std::string of;
  ModelShape model;
  int tp = 1;
  OptimizerStates optimizer = OptimizerStates::kTwoMoments;
  Fp8Layers fp8 = {};
  bool documents = false;  // that cuDNN is asked about
  bool qkv = false, gate_up = false;
};

std::vector<FusedCase> FusedCases() {
  constexpr OptimizerStates k8Bit = OptimizerStates::kTwoMoments8Bit;
  return {{.of = "gpt2", .model = GptOf(32, 4), .qkv = true},
          {.of = "biases of 8", .model = GptOf(16, 2), .tp = 2},
          {.of = "biases of 32 in blocks of 256", .model = GptOf(32, 4), .optimizer = k8Bit},
          {.of = "biases of 256 in them", .model = GptOf(256, 4), .optimizer = k8Bit, .qkv = true},
          {.of = "llama", .model = LlamaOf(96), .qkv = true, .gate_up = true},
          {.of = "llama in two", .model = LlamaOf(96), .tp = 2, .qkv = true, .gate_up = true},
          {.of = "keys in 8 bits", .model = LlamaOf(96), .fp8 = {.key = true}, .gate_up = true},
          {.of = "all in 8 bits",
           .model = LlamaOf(96),
           .fp8 = {.query = true, .key = true, .mlp = true},
           .qkv = true,
           .gate_up = true},
          {.of = "an mlp in 8 bits",
           .model = LlamaOf(96),
           .fp8 = {.mlp = true},
           .qkv = true,
           .gate_up = true},
          {.of = "documents", .model = LlamaOf(96), .documents = true, .gate_up = true},
          {.of = "norms of each head, between products and attention",
           .model = WithHeadNorms(LlamaOf(96)),
           .gate_up = true},
          {.of = "gates of 3 * 32 in blocks of 256",
           .model = LlamaOf(3),
           .optimizer = k8Bit,
           .qkv = true}};
}

TEST(FusedLinears, AreThoseWhoseTensorsAreOneRun) {
  for (const FusedCase& c : FusedCases()) {
    const Layout layout{.tp = c.tp};
    for (int rank = 0; rank < c.tp; ++rank) {
      const FusedLinears fused = FusedLinearsOf(
          JointsOf(OpsOf(c.model, 0)),
          LinearsOfOneRun(BucketsOf(c.model, layout, rank, c.optimizer)), c.fp8, c.documents);
      EXPECT_EQ(fused.qkv, c.qkv) << c.of;
      EXPECT_EQ(fused.gate_up, c.gate_up) << c.of;
    }
  }
}

// Wherever they are fused: the run [first tensor's start, last one's end) has no other tensor.
TEST(FusedLinears, FollowEachOtherInTheOrderOfTheirColumns) {
  for (const FusedCase& c : FusedCases()) {
    if (!c.qkv) continue;
    const Bucket block = BucketsOf(c.model, {.tp = c.tp}, 0, c.optimizer)[1];
    ASSERT_EQ(block.name, "blocks.0");
    int64_t end = -1;
    for (const char* name : {"q", "k", "v"}) {
      for (size_t i = 0; i < block.shards.size(); ++i) {
        if (block.shards[i].tensor.name != std::string("blocks.0.attn.") + name + ".weight") {
          continue;
        }
        if (end >= 0) {
          EXPECT_EQ(block.offsets[i], end) << c.of << " " << name;
        }
        end = block.offsets[i] + block.shards[i].elements();
      }
    }
  }
}

// A fused buffer takes the memory that its parts take where gaps between tensors keep them apart.
TEST(FusedLinears, HaveOneBufferOfTheSameSize) {
  const BatchShape batch{.global_batch_size = 2, .seq_len = 16};
  const struct {
    ModelShape model;
    const char* fused;
    std::vector<const char*> parts;
    int64_t elements;
  } cases[] = {{GptOf(32, 4), "qkv", {"q", "k", "v"}, 32 * 3 * 32},
               {LlamaOf(3), "gate_up", {"gate", "up"}, 32 * 2 * 3}};
  for (const auto& c : cases) {
    for (const std::string prefix : {"slot0/", "work/d"}) {
      const auto elements = [&](OptimizerStates optimizer, const char* name) {
        const RankMemory memory =
            PlanRankMemory(c.model, batch, {.micro_batch_size = 2}, 0,
                           {.precision = Precision::kBf16, .optimizer = optimizer});
        for (const BufferSpec& buffer : memory.buffers) {
          if (buffer.name == prefix + name) return buffer.elements;
        }
        return int64_t{0};
      };
      EXPECT_EQ(elements(OptimizerStates::kTwoMoments, c.fused), c.elements);
      EXPECT_EQ(elements(OptimizerStates::kTwoMoments8Bit, c.fused), 0);
      int64_t apart = 0;
      for (const char* part : c.parts) {
        EXPECT_EQ(elements(OptimizerStates::kTwoMoments, part), 0) << part;
        apart += elements(OptimizerStates::kTwoMoments8Bit, part);
      }
      EXPECT_EQ(apart, c.elements);
    }
  }
}

}  // namespace
}  // namespace weft
