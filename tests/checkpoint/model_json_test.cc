#include "checkpoint/model_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft {
namespace {

using testing::HasSubstr;

ModelShape AnyModel() {
  ModelShape model = {.family = ModelFamily::kLlama,
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

TEST(ModelJson, ReadsBackAsItWas) {
  const auto read = ParseModelJson(ModelJson(AnyModel()));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, AnyModel());
}

TEST(ModelJson, MissesEachFieldByName) {
  const auto whole = nlohmann::json::parse(ModelJson(AnyModel()));
  ASSERT_GT(whole.size(), 15u);
  for (const auto& [key, value] : whole.items()) {
    nlohmann::json without = whole;
    without.erase(key);
    nlohmann::json other = whole;
    other[key] = nlohmann::json::array();
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
