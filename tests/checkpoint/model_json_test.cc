#include "checkpoint/model_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

namespace weft {
namespace {

using testing::HasSubstr;

ModelShape AnyModel() {
  ModelShape model = {.architecture = Architecture::kLlama,
                      .vocab_size = 90,
                      .hidden_size = 16,
                      .num_blocks = 2,
                      .num_heads = 2,
                      .num_kv_heads = 1,
                      .head_dim = 10,
                      .ffn_size = 24,
                      .max_positions = 40};
  model.norm_eps = 1.0 / 3;
  model.rope_theta = 5e5;
  model.rope_scaling = {8, 2, 5, 32};
  model.attention_bias = true;
  return model;
}

// Members that older files lack.
const char* const kNewer[] = {"rope_type",
                              "rope_beta_fast",
                              "rope_beta_slow",
                              "rope_truncates",
                              "rope_attention_factor",
                              "rope_mscale",
                              "rope_mscale_all_dim",
                              "qk_norms",
                              "layer_norms",
                              "plain_ffn",
                              "bare_output",
                              "ffn_bias",
                              "learned_positions",
                              "scaled_residual_init",
                              "embedding_multiplier",
                              "residual_multiplier",
                              "attention_multiplier",
                              "logits_scaling",
                              "logit_scale",
                              "wide_qk_norms",
                              "bare_norms",
                              "pre_norms",
                              "parallel_residual",
                              "shares_norm",
                              "window",
                              "spans",
                              "turns",
                              "sliding_rope_theta",
                              "rotary_share",
                              "interleaved_rotation",
                              "post_norms",
                              "norm_offset",
                              "scaled_embeddings",
                              "query_scalar",
                              "attention_cap",
                              "logit_cap"};

TEST(ModelJson, ReadsBackAsItWas) {
  ModelShape by_block = AnyModel();
  by_block.window = 7;
  by_block.spans = {AttentionSpan::kFull, AttentionSpan::kSliding};
  by_block.turns = {false, true};
  by_block.sliding_rope_theta = 1.0 / 7;
  by_block.rotary_share = 0.4;
  by_block.interleaved_rotation = by_block.post_norms = by_block.scaled_embeddings = true;
  by_block.norm_offset = 1;
  by_block.pre_norms = false;
  by_block.parallel_residual = by_block.shares_norm = by_block.bare_norms = true;
  by_block.qk_norms = by_block.wide_qk_norms = true;
  by_block.post_norms = false;
  by_block.logit_scale = 1.0 / 3;
  by_block.query_scalar = 3;
  by_block.attention_cap = 50;
  by_block.logit_cap = 30;
  for (const ModelShape& model : {AnyModel(), by_block}) {
    const auto read = ParseModelJson(ModelJson(model));
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, model);
  }
}

// A run of before these members were there goes on.
TEST(ModelJson, OfBeforeMechanismsWereMembersIsReadAsItsArchitectureHasThem) {
  ModelShape gpt2 = AnyModel();
  gpt2.rope_scaling = {};
  gpt2.num_kv_heads = gpt2.num_heads;
  gpt2.head_dim = 8;
  SetArchitecture(Architecture::kGpt2, gpt2);
  for (const ModelShape& model : {gpt2, AnyModel()}) {
    auto json = nlohmann::json::parse(ModelJson(model));
    for (const char* const key : kNewer) ASSERT_EQ(json.erase(key), 1u) << key;
    if (model == gpt2) json["attention_bias"] = false;
    const auto read = ParseModelJson(json.dump());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(*read, model);
  }
}

TEST(ModelJson, MissesEachFieldByName) {
  const auto whole = nlohmann::json::parse(ModelJson(AnyModel()));
  ASSERT_GT(whole.size(), 15u);
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json without = whole;
    without.erase(key);
    nlohmann::json other = whole;
    other[key] = nlohmann::json::object();
    const bool may_lack = std::find(std::begin(kNewer), std::end(kNewer), key) != std::end(kNewer);
    if (may_lack) without = other;
    for (const nlohmann::json& wrong : {without, other}) {
      const auto read = ParseModelJson(wrong.dump());
      EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << key;
      EXPECT_THAT(std::string(read.status().message()), HasSubstr("'" + key + "'"));
    }
  }
  for (const char* const text : {"", "[]", "{", "7"}) {
    EXPECT_THAT(std::string(ParseModelJson(text).status().message()), HasSubstr("no object"));
  }
}

TEST(ModelJson, RefusesAModelThatCannotBe) {
  auto json = nlohmann::json::parse(ModelJson(AnyModel()));
  json["num_kv_heads"] = 3;
  EXPECT_THAT(std::string(ParseModelJson(json.dump()).status().message()),
              HasSubstr("expected a model that can be"));
}

}  // namespace
}  // namespace weft
