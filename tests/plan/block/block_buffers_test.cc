#include "plan/block/block_buffers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/plan/sample_models.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> NamesOf(const std::vector<BlockBuffer>& buffers) {
  std::vector<std::string> names;
  for (const BlockBuffer& buffer : buffers) names.emplace_back(buffer.name);
  return names;
}

ModelShape SmallGpt2() {
  return Gpt2Of(2, 64, 4, 256, 128);
}

ModelShape SmallLlama() {
  return LlamaOf(2, 64, 8, 2, 176, 300);
}

TEST(SavedBuffers, OfAGpt2AreWhatGradientsRead) {
  const SavedBuffers saved = SavedBuffersOf(OpsOf(SmallGpt2(), 0), Recompute::kNone);
  EXPECT_THAT(NamesOf(saved.kept),
              ElementsAre("x", "norm1_mean", "norm1_rstd", "norm1_out", "q", "k", "v", "lse",
                          "attn", "x_mid", "norm2_mean", "norm2_rstd", "norm2_out", "up", "act"));
  EXPECT_THAT(saved.made_again, IsEmpty());
}

// Korthikanti et al., arXiv:2205.05198, 5, extended to what is as cheap as scores: norms and
// activations, not their statistics.
TEST(SavedBuffers, SelectiveRecomputeMakesCheapOutputsAgain) {
  const SavedBuffers saved = SavedBuffersOf(OpsOf(SmallLlama(), 0), Recompute::kSelective);
  EXPECT_THAT(NamesOf(saved.kept), ElementsAre("x", "norm1_rstd", "q", "k", "v", "lse", "attn",
                                               "x_mid", "norm2_rstd", "up", "gate"));
  EXPECT_THAT(NamesOf(saved.made_again), ElementsAre("norm1_out", "norm2_out", "act"));
}

TEST(SavedBuffers, FullRecomputeKeepsTheInputAlone) {
  for (const ModelShape& model : {SmallGpt2(), SmallLlama(), SmallPlain(), SmallLatent()}) {
    const BlockOps block = OpsOf(model, 0);
    const SavedBuffers saved = SavedBuffersOf(block, Recompute::kFull);
    EXPECT_THAT(NamesOf(saved.kept), ElementsAre("x"));
    EXPECT_EQ(saved.made_again.size() + 1, SavedBuffersOf(block, Recompute::kNone).kept.size());
  }
}

// A head's norm reads what it normed, attention what came of it: both are there.
TEST(SavedBuffers, OfNormedHeadsAreHeadsBeforeAndAfter) {
  ModelShape qwen3 = SmallLlama();
  qwen3.qk_norms = true;
  const SavedBuffers saved = SavedBuffersOf(OpsOf(qwen3, 0), Recompute::kSelective);
  EXPECT_THAT(NamesOf(saved.kept),
              ElementsAre("x", "norm1_rstd", "q", "k", "v", "q_rstd", "q_normed", "k_rstd",
                          "k_normed", "lse", "attn", "x_mid", "norm2_rstd", "up", "gate"));
}

TEST(SavedBuffers, OfFusedLayersAreAsWideAsAllOfThem) {
  const BlockOps block = Fuse(Fuse(OpsOf(SmallLlama(), 0), "qkv"), "gate_up");
  const SavedBuffers saved = SavedBuffersOf(block, Recompute::kSelective);
  EXPECT_THAT(NamesOf(saved.kept), ElementsAre("x", "norm1_rstd", "qkv", "lse", "attn", "x_mid",
                                               "norm2_rstd", "gate_up"));
  Layout layout;
  EXPECT_EQ(LocalColumns(block, saved.kept[2].value, layout, 0), 64 + 2 * 16);
  layout.tp = 4;  // two heads each; keys of one head, which two ranks share
  EXPECT_EQ(LocalColumns(block, saved.kept[2].value, layout, 3), 16 + 2 * 8);
}

TEST(GradientBuffers, ShareThePlaceOfNormsAndTakeThatOfTheActivation) {
  EXPECT_THAT(NamesOf(GradientBuffersOf(OpsOf(SmallGpt2(), 0))),
              ElementsAre("up", "norm", "attn", "q", "k", "v"));
  EXPECT_THAT(NamesOf(GradientBuffersOf(OpsOf(SmallLlama(), 0))),
              ElementsAre("up", "gate", "norm", "attn", "q", "k", "v"));
  EXPECT_THAT(NamesOf(GradientBuffersOf(Fuse(Fuse(OpsOf(SmallLlama(), 0), "qkv"), "gate_up"))),
              ElementsAre("gate_up", "norm", "attn", "qkv"));
}

// Residuals pass a gradient on: it stays where the block was given it.
TEST(GradientBuffers, HoldNoneOfTheResiduals) {
  for (const ModelShape& model : {SmallGpt2(), SmallLlama(), SmallPlain()}) {
    for (const std::string& name : NamesOf(GradientBuffersOf(OpsOf(model, 0)))) {
      EXPECT_THAT(name, ::testing::Not(::testing::AnyOf("x", "x_mid", "out", "attn_out")));
    }
  }
}

// Products that tp cuts have seen all tokens, whatever part of them the norm had.
TEST(GradientBuffers, OfNormsAreOfAllTokens) {
  for (const BlockBuffer& buffer : GradientBuffersOf(OpsOf(SmallLlama(), 0))) {
    EXPECT_EQ(buffer.rows, Rows::kTokens) << buffer.name;
  }
}

TEST(FirstColumn, IsThatOfAFusedLayersShare) {
  const BlockOps block = Fuse(Fuse(OpsOf(SmallLlama(), 0), "qkv"), "gate_up");
  const auto first = [&](absl::string_view name, int tp) {
    Layout layout;
    layout.tp = tp;
    for (size_t value = 0; value < block.values.size(); ++value) {
      if (block.values[value].name == name) {
        return FirstColumn(block, static_cast<int>(value), layout, 0);
      }
    }
    return int64_t{-1};
  };
  EXPECT_EQ(first("q_turned", 1), 0);
  EXPECT_EQ(first("k_turned", 1), 64);
  EXPECT_EQ(first("v", 1), 80);
  EXPECT_EQ(first("v", 4), 16 + 8);
  EXPECT_EQ(first("gate", 1), 0);
  EXPECT_EQ(first("up", 2), 88);
  EXPECT_EQ(first("attn", 1), 0) << "memory of its own";
}

// Runs a pass on paper: says what reads a buffer that holds another value by then.
std::vector<std::string> WrongReads(const BlockOps& block, const PassBuffers& places) {
  std::vector<std::string> wrong;
  std::vector<int> holds(places.buffers.size(), -1);  // the value, by its place
  const auto buffer_of = [&](int value) { return places.of_value[static_cast<size_t>(value)]; };
  const auto write = [&](int value) {
    if (buffer_of(value) == PassBuffers::kInCache) return;
    holds[static_cast<size_t>(buffer_of(value))] = block.PlaceOf(value);
  };
  const auto read = [&](int value) {
    if (buffer_of(value) == PassBuffers::kInCache) return;
    if (holds[static_cast<size_t>(buffer_of(value))] == block.PlaceOf(value)) return;
    wrong.emplace_back(block.values[static_cast<size_t>(value)].name);
  };
  write(0);
  for (const BlockOp& op : block.ops) {
    for (const int value : op.in) read(value);
    for (const int value : op.statistics) write(value);
    for (const int value : op.out) write(value);
    // An output must not have taken the place of what the operation reads.
    const bool is_in_place = block.PlaceOf(op.out.front()) == block.PlaceOf(op.in.back());
    for (const int value : op.in) {
      if (!is_in_place) read(value);
    }
  }
  read(block.output);
  return wrong;
}

std::vector<ModelShape> ModelsThatPass() {
  ModelShape qwen3 = SmallLlama();
  SetArchitecture(Architecture::kQwen3, qwen3);
  ModelShape square = LlamaOf(2, 64, 8, 8, 64, 300);  // all values are as wide as residuals
  return {SmallGpt2(), SmallLlama(), qwen3, square};
}

TEST(PassBuffers, HoldAValueUntilItWasReadForTheLastTime) {
  for (const ModelShape& model : ModelsThatPass()) {
    const BlockOps block = OpsOf(model, 0);
    EXPECT_THAT(WrongReads(block, PassBuffersOf(block)), IsEmpty()) << ModelTypeOf(model);
  }
}

// A value that was given back one operation early is read when another one is in its place.
TEST(PassBuffers, AreFoundWrongWhereAValueGoesTooEarly) {
  const BlockOps block = OpsOf(SmallLlama(), 0);
  PassBuffers places = PassBuffersOf(block);
  const auto index_of = [&](absl::string_view name) {
    size_t value = 0;
    while (block.values[value].name != name) ++value;
    return value;
  };
  places.of_value[index_of("up")] = places.of_value[index_of("gate")];
  EXPECT_THAT(WrongReads(block, places), testing::Contains("up"));
}

// Attention gives values that are as wide as residuals here.
TEST(PassBuffers, OfALlamaShareThePlacesOfResidualsAndNorms) {
  const PassBuffers places = PassBuffersOf(OpsOf(SmallLlama(), 0));
  EXPECT_THAT(NamesOf(places.buffers),
              ElementsAre("x", "norm1_rstd", "norm1_out", "q", "lse", "up", "gate", "act"));
}

}  // namespace
}  // namespace weft
