#include "plan/spec/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/spec/layout_rules.h"
#include "tests/plan/sample_models.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

template <typename Change>
void ExpectBroken(ModelShape model, Change change, const char* message) {
  EXPECT_TRUE(CheckModel(model).ok());
  change(model);
  EXPECT_EQ(CheckModel(model), absl::InvalidArgumentError(message));
}

TEST(CheckModel, NamesTheRuleThatAGpt2Breaks) {
  const ModelShape gpt2 = Gpt2Of(2, 64, 4, 256, 128);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.num_heads = m.num_kv_heads = 5; },
      "model.n_head: 5 does not divide n_embd 64; use 1, 2, 4, 8, 16, 32 or 64");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.head_dim = 8; },
      "model.n_head: 4 heads of 8 are not n_embd 64; use heads of 16");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.num_kv_heads = 2; },
      "model.n_head: 4 differs from 2 kv heads; gpt2 has as many kv heads as heads");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.vocab_size = 0; },
      "model.vocab_size: 0 is out of range; use 1 to 2147483647");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.hidden_size = -64; },
      "model.n_embd: -64 is out of range; use 1 to 1048576");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.num_blocks = 100000; },
      "model.n_layer: 100000 is out of range; use 1 to 65536");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.ffn_size = 0; },
      "model.n_inner: 0 is out of range; use 1 to 4194304");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.max_positions = 0; },
      "model.n_positions: 0 is out of range; use 1 to 1073741824");
  ExpectBroken(
      gpt2, [](ModelShape& m) { m.norm_eps = 0; },
      "model.layer_norm_epsilon: 0 is not a positive number; use e.g. 1e-05");
  ExpectBroken(
      gpt2, [nan](ModelShape& m) { m.initializer_range = nan; },
      "model.initializer_range: nan is not a positive number; use e.g. 0.02");
}

TEST(CheckModel, NamesTheRuleThatALlamaBreaks) {
  const ModelShape llama = LlamaOf(2, 64, 8, 2, 176, 256);
  ExpectBroken(
      llama, [](ModelShape& m) { m.num_kv_heads = 3; },
      "model.num_key_value_heads: 3 does not divide num_attention_heads 8; use 1, 2, 4 or 8");
  ExpectBroken(
      llama, [](ModelShape& m) { m.head_dim = 7; },
      "model.head_dim: 7 is odd, but rotary positions turn pairs; use an even one");
  ExpectBroken(
      llama, [](ModelShape& m) { m.rope_theta = 0; },
      "model.rope_theta: 0 is not a positive number; use e.g. 10000");
  ExpectBroken(
      llama, [](ModelShape& m) { m.num_heads = 0; },
      "model.num_attention_heads: 0 is out of range; use 1 to 1048576");
  ExpectBroken(
      llama,
      [](ModelShape& m) {
        m.num_heads = m.num_kv_heads = 1 << 12;
        m.head_dim = 1 << 12;
      },
      "model.num_attention_heads: 4096 heads of 4096 are too wide; use at most 4194304 in all");
}

TEST(CheckModel, NamesTheRuleThatStretchedRotaryPositionsBreak) {
  ModelShape llama = LlamaOf(2, 64, 8, 2, 176, 256);
  llama.rope_scaling = {.factor = 8, .original_max_positions = 64};
  EXPECT_TRUE(CheckModel(llama).ok());
  ExpectBroken(
      llama, [](ModelShape& m) { m.rope_scaling.factor = 0.5; },
      "model.rope_scaling.factor: 0.5 is less than 1; use 1 or more, e.g. 8");
  ExpectBroken(
      llama, [](ModelShape& m) { m.rope_scaling.low_freq_factor = 4; },
      "model.rope_scaling.low_freq_factor: 4 with high_freq_factor 4; both must be positive and "
      "the former smaller, e.g. 1 and 4");
  ExpectBroken(
      llama, [](ModelShape& m) { m.rope_scaling.original_max_positions = 0; },
      "model.rope_scaling.original_max_position_embeddings: 0 is out of range; use 1 to "
      "1073741824");
}

TEST(CheckModel, NamesTheRuleThatExpertsBreak) {
  const ModelShape model = WithExperts(LlamaOf(2, 64, 8, 2, 176, 300), 8, 2);
  ExpectBroken(
      model, [](ModelShape& m) { m.experts_per_token = 9; },
      "model.num_experts_per_tok: 9 is out of range; use 1 to 8");
  ExpectBroken(
      model, [](ModelShape& m) { m.expert_ffn_size = 0; },
      "model.moe_intermediate_size: 0 is out of range; use 1 to 4194304");
  ExpectBroken(
      model, [](ModelShape& m) { m.num_experts = -1; },
      "model.num_local_experts: -1 is out of range; use 1 to 16384");
  ExpectBroken(
      model, [](ModelShape& m) { m.expert_ffn_size = 1 << 22; },
      "model.num_local_experts: 8 experts of 4194304 are too wide; use at most 16777216 in all");
  ExpectBroken(
      Gpt2Of(2, 64, 4, 256, 128), [](ModelShape& m) { m.num_experts = 8; },
      "model.num_local_experts: 8 with gpt2, whose feed-forward is dense; use 0, or a llama with "
      "experts");
}

TEST(CheckModel, NamesTheRuleThatLatentAttentionAndSharedExpertsBreak) {
  const ModelShape model = SmallLatent();
  ASSERT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  ExpectBroken(
      model, [](ModelShape& m) { m.num_dense_blocks = 3; },
      "model.first_k_dense_replace: 3 is out of range; use 0 to 2, so that a block with experts "
      "is left");
  ExpectBroken(
      model, [](ModelShape& m) { m.shared_ffn_size = 0; },
      "model.shared_expert_gate: true without a shared expert; use false");
  ExpectBroken(
      model, [](ModelShape& m) { m.expert_imbalance = 0.5; },
      "model.expert_imbalance: 0.5 is out of range; use 1 to 4");
  ExpectBroken(
      model, [](ModelShape& m) { m.latent.value_dim = 0; },
      "model.v_head_dim: 0 is out of range; use 1 to 1048576");
  ExpectBroken(
      model, [](ModelShape& m) { m.head_dim = 16; },
      "model.head_dim: 16 is not qk_nope_head_dim + qk_rope_head_dim; use 12, or leave it out");
  ExpectBroken(
      model, [](ModelShape& m) { m.num_kv_heads = 4; },
      "model.num_key_value_heads: 4 with kv_lora_rank, where each head has a key of its own; use "
      "8");
  ExpectBroken(
      LlamaOf(2, 64, 8, 2, 176, 300), [](ModelShape& m) { m.num_dense_blocks = 1; },
      "model.first_k_dense_replace: 1 with a model without experts; use 0, or num_local_experts");
}

TEST(ModelIssues, ReportsAllBrokenRulesAtOnce) {
  ModelShape model = Gpt2Of(2, 64, 4, 256, 128);
  model.num_blocks = 0;
  model.ffn_size = 0;
  model.norm_eps = -1;
  std::vector<std::string> keys;
  for (const SpecIssue& issue : ModelIssues(model)) keys.push_back(issue.key);
  EXPECT_THAT(keys, ElementsAre("model.n_layer", "model.n_inner", "model.layer_norm_epsilon"));
}

TEST(Architecture, IsParsedByItsName) {
  for (const Architecture each : {Architecture::kGpt2, Architecture::kQwen3Moe}) {
    EXPECT_EQ(*ParseWord<Architecture>(WordOf(each), "an architecture"), each);
  }
  EXPECT_EQ(WordOf(Architecture::kNemotron), "nemotron") << "the last of the words";
}

TEST(Architecture, GivesAModelItsMechanismsAndTakesThoseOfAnotherAway) {
  ModelShape model;
  SetArchitecture(Architecture::kGpt2, model);
  EXPECT_TRUE(model.learned_positions && model.layer_norms && model.plain_ffn && model.ffn_bias &&
              model.attention_bias && model.scaled_residual_init);
  EXPECT_EQ(model.activation, Activation::kGelu);
  SetArchitecture(Architecture::kQwen2, model);
  EXPECT_TRUE(model.attention_bias && model.bare_output && !model.has_output_bias());
  SetArchitecture(Architecture::kLlama, model);
  EXPECT_EQ(model, ModelShape());
  model.attention_bias = true;  // as a llama's file may say
  SetArchitecture(Architecture::kQwen3, model);
  EXPECT_TRUE(model.attention_bias && model.qk_norms);
}

TEST(Architecture, IsTheNearestWhereMechanismsAreNotItsOwn) {
  ModelShape model;
  EXPECT_EQ(ModelTypeOf(model), "llama");
  model.qk_norms = true;
  EXPECT_EQ(ModelTypeOf(model), "qwen3");
  model.num_experts = 8;
  EXPECT_EQ(ModelTypeOf(model), "qwen3_moe");
  model.qk_norms = false;
  EXPECT_EQ(ModelTypeOf(model), "mixtral");
  ModelShape mistral;
  SetArchitecture(Architecture::kMistral, mistral);
  EXPECT_EQ(ModelTypeOf(mistral), "mistral");
  mistral.residual_multiplier = 0.5;
  EXPECT_EQ(ModelTypeOf(mistral), "granite");
}

// Exported, such a model would be read as another one.
TEST(Architecture, OfAMixtureOfMechanismsIsNoneThatRuns) {
  for (const Architecture each :
       {Architecture::kGpt2, Architecture::kLlama, Architecture::kMistral, Architecture::kQwen2,
        Architecture::kQwen3, Architecture::kPhi3, Architecture::kStarcoder2,
        Architecture::kGranite, Architecture::kSeedOss}) {
    ModelShape model;
    SetArchitecture(each, model);
    EXPECT_TRUE(IsOfItsArchitecture(model)) << WordOf(each);
    EXPECT_TRUE(EngineRuns(model)) << WordOf(each);
    if (each == Architecture::kGpt2 || each == Architecture::kStarcoder2) continue;
    model.layer_norms = true;
    EXPECT_FALSE(IsOfItsArchitecture(model)) << WordOf(each);
    EXPECT_EQ(FirstIssue(EngineIssues(model)),
              absl::InvalidArgumentError(absl::StrCat(
                  "model.model_type: ", WordOf(each), " with mechanisms of other types is ",
                  "not supported yet; use keys of one type's models alone")));
  }
  ModelShape scaled;
  SetArchitecture(Architecture::kQwen3, scaled);
  scaled.residual_multiplier = 0.5;
  EXPECT_FALSE(EngineRuns(scaled));
}

TEST(DivisorsText, ListsTheDivisorsThatAreSmallEnoughAroundTheOneFound) {
  EXPECT_EQ(DivisorsText(1, 1, 3), "1");
  EXPECT_EQ(DivisorsText(32, 1, 3), "1");
  EXPECT_EQ(DivisorsText(2, 8, 3), "1 or 2");
  EXPECT_EQ(DivisorsText(12, 5, 5), "1, 2, 3 or 4");
  EXPECT_EQ(DivisorsText(36, 36, 5), "1, 2, 3, 4, 6, 9, 12, 18 or 36");
  // 360 has 24 divisors.
  EXPECT_EQ(DivisorsText(360, 360, 1), "1, 2, 3, 4, 5, 6, 8, 9, 10, 12, 15 or 18");
  EXPECT_EQ(DivisorsText(360, 360, 25), "10, 12, 15, 18, 20, 24, 30, 36, 40, 45, 60 or 72");
  EXPECT_EQ(DivisorsText(360, 360, 400), "20, 24, 30, 36, 40, 45, 60, 72, 90, 120, 180 or 360");
}

}  // namespace
}  // namespace weft
