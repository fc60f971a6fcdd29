#include "plan/block/block_ops.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/plan/sample_models.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

ModelShape Qwen3() {
  ModelShape model = LlamaOf(2, 64, 8, 2, 176, 300);
  model.head_dim = 16;
  model.qk_norms = true;
  return model;
}

// "x_mid = add(x, attn_out)"
std::vector<std::string> TextOf(const BlockOps& block) {
  static constexpr absl::string_view kKinds[] = {
      "norm",      "head_norm", "wide_norm", "linear",   "rotate",       "join_heads",
      "attention", "scale",     "add",       "gelu",     "squared_relu", "erf_gelu",
      "swiglu",    "geglu",     "route",     "dispatch", "combine",      "scale_rows"};
  const auto names = [&](const std::vector<int>& values) {
    return absl::StrJoin(values, ", ", [&](std::string* text, int value) {
      absl::StrAppend(text, block.values[static_cast<size_t>(value)].name);
    });
  };
  std::vector<std::string> lines;
  for (const BlockOp& op : block.ops) {
    lines.push_back(absl::StrCat(names(op.out), " = ", kKinds[static_cast<size_t>(op.kind)], "(",
                                 names(op.in), ")"));
  }
  return lines;
}

TEST(OpsOf, AGpt2NormsThenAddsTwice) {
  EXPECT_THAT(
      TextOf(OpsOf(Gpt2Of(2, 64, 4, 256, 128), 0)),
      ElementsAre("norm1_out = norm(x)", "q = linear(norm1_out)", "k = linear(norm1_out)",
                  "v = linear(norm1_out)", "attn = attention(q, k, v)", "attn_out = linear(attn)",
                  "x_mid = add(x, attn_out)", "norm2_out = norm(x_mid)", "up = linear(norm2_out)",
                  "act = gelu(up)", "mlp_out = linear(act)", "out = add(x_mid, mlp_out)"));
}

// Yang et al., Qwen3, arXiv:2505.09388, 2: heads are normed before they are turned.
TEST(OpsOf, AQwen3NormsHeadsBeforeItTurnsThem) {
  EXPECT_THAT(
      TextOf(OpsOf(Qwen3(), 0)),
      ElementsAre("norm1_out = norm(x)", "q = linear(norm1_out)", "k = linear(norm1_out)",
                  "v = linear(norm1_out)", "q_normed = head_norm(q)", "k_normed = head_norm(k)",
                  "q_turned = rotate(q_normed)", "k_turned = rotate(k_normed)",
                  "attn = attention(q_turned, k_turned, v)", "attn_out = linear(attn)",
                  "x_mid = add(x, attn_out)", "norm2_out = norm(x_mid)", "up = linear(norm2_out)",
                  "gate = linear(norm2_out)", "act = swiglu(gate, up)", "mlp_out = linear(act)",
                  "out = add(x_mid, mlp_out)"));
}

ModelShape Of(Architecture architecture) {
  ModelShape model = LlamaOf(2, 64, 8, 2, 176, 300);
  SetArchitecture(architecture, model);
  return model;
}

// Black et al., arXiv:2204.06745, 2.1: both branches read the block's input. Their last products
// stand beside each other, as terms of one sum.
TEST(OpsOf, AGptNeoxAddsBothBranchesAtOnce) {
  ModelShape model = Of(Architecture::kGptNeox);
  model.parallel_residual = true;
  EXPECT_THAT(TextOf(OpsOf(model, 0)),
              ElementsAre("norm2_out = norm(x)", "up = linear(norm2_out)", "act = erf_gelu(up)",
                          "norm1_out = norm(x)", "q = linear(norm1_out)", "k = linear(norm1_out)",
                          "v = linear(norm1_out)", "q_turned = rotate(q)", "k_turned = rotate(k)",
                          "attn = attention(q_turned, k_turned, v)", "attn_out = linear(attn)",
                          "mlp_out = linear(act)", "out = add(x, attn_out, mlp_out)"));
}

// All products of the one norm's output follow each other.
TEST(OpsOf, ACohere2HasOneNormForBoth) {
  EXPECT_THAT(TextOf(OpsOf(Of(Architecture::kCohere2), 0)),
              ElementsAre("norm1_out = norm(x)", "q = linear(norm1_out)", "k = linear(norm1_out)",
                          "v = linear(norm1_out)", "up = linear(norm1_out)",
                          "gate = linear(norm1_out)", "q_turned = rotate(q)",
                          "k_turned = rotate(k)", "attn = attention(q_turned, k_turned, v)",
                          "act = swiglu(gate, up)", "attn_out = linear(attn)",
                          "mlp_out = linear(act)", "out = add(x, attn_out, mlp_out)"));
}

// OLMo Team, arXiv:2501.00656, 3.2: norms of queries, keys and of what branches add, none before.
TEST(OpsOf, AnOlmo2NormsWhatBranchesAddAlone) {
  EXPECT_THAT(
      TextOf(OpsOf(Of(Architecture::kOlmo2), 0)),
      ElementsAre("q = linear(x)", "k = linear(x)", "v = linear(x)", "q_normed = wide_norm(q)",
                  "k_normed = wide_norm(k)", "q_turned = rotate(q_normed)",
                  "k_turned = rotate(k_normed)", "attn = attention(q_turned, k_turned, v)",
                  "attn_out = linear(attn)", "attn_normed = norm(attn_out)",
                  "x_mid = add(x, attn_normed)", "up = linear(x_mid)", "gate = linear(x_mid)",
                  "act = swiglu(gate, up)", "mlp_out = linear(act)", "mlp_normed = norm(mlp_out)",
                  "out = add(x_mid, mlp_normed)"));
}

TEST(OpsOf, ExpertsStandBesideWhatEveryTokenPasses) {
  const std::vector<std::string> all = TextOf(OpsOf(SmallLatent(), 1));
  const std::vector<std::string> feed_forward(all.end() - 16, all.end());
  EXPECT_THAT(
      feed_forward,
      ElementsAre("norm2_out = norm(x_mid)", "router_logits = linear(norm2_out)",
                  "expert_shares = route(router_logits)",
                  "routed = dispatch(norm2_out, expert_shares)", "expert_up = linear(routed)",
                  "expert_gate = linear(routed)", "expert_act = swiglu(expert_gate, expert_up)",
                  "expert_out = linear(expert_act)",
                  "combined = combine(expert_out, expert_shares)", "shared_up = linear(norm2_out)",
                  "shared_gate = linear(norm2_out)", "shared_act = swiglu(shared_gate, shared_up)",
                  "shared_out = linear(shared_act)", "shared_logit = linear(norm2_out)",
                  "shared_scaled = scale_rows(shared_out, shared_logit)",
                  "out = add(x_mid, combined, shared_scaled)"));
}

// Every operation reads what is there: the block's input, or the output of one before it.
TEST(OpsOf, ReadNothingThatNobodyHasMade) {
  for (const ModelShape& model : {Gpt2Of(2, 64, 4, 256, 128), Qwen3(), SmallLatent(), SmallPlain(),
                                  WithExperts(LlamaOf(2, 64, 8, 2, 176, 300), 8, 2)}) {
    for (const int64_t index : {int64_t{0}, model.num_blocks - 1}) {
      const BlockOps block = OpsOf(model, index);
      std::set<int> made = {0};
      for (const BlockOp& op : block.ops) {
        for (const int in : op.in) {
          const bool is_part = block.values[static_cast<size_t>(in)].place != kOwnPlace &&
                               made.count(block.values[static_cast<size_t>(in)].place) > 0;
          EXPECT_TRUE(made.count(in) > 0 || is_part) << block.values[static_cast<size_t>(in)].name;
        }
        made.insert(op.out.begin(), op.out.end());
      }
      EXPECT_EQ(made.count(block.output), 1);
    }
  }
}

// The weight of a norm over heads is whole on each tp rank, which sees its own heads alone.
TEST(OpsOf, GradientsOfHeadNormsAreSumsOverTp) {
  for (const BlockParam& param : OpsOf(Qwen3(), 0).params) {
    const bool of_heads = param.name == "attn.q_norm.weight" || param.name == "attn.k_norm.weight";
    const bool of_tokens = param.name == "norm1.weight" || param.name == "norm2.weight";
    EXPECT_EQ(param.sum, of_heads    ? GradientSum::kOwnHeads
                         : of_tokens ? GradientSum::kOwnTokens
                                     : GradientSum::kNone)
        << param.name;
  }
}

// Blocks that differ in what their operations are told have the same values and parameters.
TEST(ListsOf, AreOneForEachKindOfBlock) {
  ModelShape model = LlamaOf(5, 64, 8, 2, 176, 300);
  const auto lists = [&] {
    return ListsOf(model.num_blocks, [&](int64_t block) { return OpsOf(model, block); });
  };
  EXPECT_EQ(lists().kinds.size(), 1u);
  model.window = 9;
  using enum AttentionSpan;
  model.spans = {kSliding, kFull, kSliding, kFull, kFull};
  model.turns = {true, true, true, false, true};
  const BlockLists all = lists();
  EXPECT_EQ(all.of_block, (std::vector<size_t>{0, 1, 0, 2, 1}));
  for (const BlockOps& kind : all.kinds) {
    EXPECT_EQ(kind.values, all.kinds.front().values);
    EXPECT_EQ(kind.params, all.kinds.front().params);
  }
  const auto windows = [&](int64_t block) {
    int64_t window = -1;
    for (const BlockOp& op : all.of(block).ops) {
      if (op.kind == OpKind::kAttention) window = op.window;
      if (op.kind == OpKind::kRotate) {
        EXPECT_EQ(op.turns, block != 3) << block;
      }
    }
    return window;
  };
  EXPECT_EQ(windows(0), 9);
  EXPECT_EQ(windows(3), 0);
}

TEST(LocalCount, TilesADimOrCopiesItsUnits) {
  const Dim heads = {.count = 6 * 8, .unit = 8, .cut = DimCut::kTensor};
  Layout layout;
  for (const int tp : {1, 2, 3, 4, 6}) {
    layout.tp = tp;
    int64_t sum = 0;
    for (int i = 0; i < tp; ++i) {
      EXPECT_EQ(LocalCount(heads, layout, i) % 8, 0);
      sum += LocalCount(heads, layout, i);
    }
    EXPECT_EQ(sum, heads.count) << tp;
  }
  layout.tp = 12;
  for (int i = 0; i < layout.tp; ++i) EXPECT_EQ(LocalCount(heads, layout, i), 8);
  EXPECT_EQ(LocalCount({.count = 7}, layout, 3), 7) << "nothing cuts it";
}

TEST(Fuse, MakesOneProductOfLayersThatReadTheSame) {
  const BlockOps block = Fuse(Fuse(OpsOf(LlamaOf(2, 64, 8, 2, 176, 300), 0), "qkv"), "gate_up");
  const std::vector<std::string> lines = TextOf(block);
  EXPECT_EQ(lines[1], "qkv = linear(norm1_out)");
  EXPECT_EQ(lines[2], "q_turned = rotate(q)");
  EXPECT_EQ(lines[8], "gate_up = linear(norm2_out)");
  EXPECT_EQ(lines[9], "act = swiglu(gate, up)");
  std::vector<std::string> weights;
  for (const size_t op : {1, 8}) {
    for (const int param : block.ops[op].params) {
      weights.push_back(block.params[static_cast<size_t>(param)].name);
    }
  }
  EXPECT_THAT(weights, ElementsAre("attn.q.weight", "attn.k.weight", "attn.v.weight",
                                   "mlp.gate.weight", "mlp.up.weight"));
}

TEST(Fuse, LeavesAFeedForwardWithoutAGateAsItIs) {
  const BlockOps block = OpsOf(Gpt2Of(2, 64, 4, 256, 128), 0);
  EXPECT_EQ(TextOf(Fuse(block, "gate_up")), TextOf(block));
}

}  // namespace
}  // namespace weft
