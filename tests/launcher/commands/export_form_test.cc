#include "launcher/inference/export_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "launcher/job_file/model_config.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// The text model of a wrapper leaves by itself: transformers would look for a tower otherwise, and
// for tensors below language_model.
TEST(FormLike, OfAWrapperIsThatOfItsTextModel) {
  const JobFolder folder;
  const Json wrapper = {{"model_type", "gemma3"},
                        {"architectures", {"Gemma3ForConditionalGeneration"}},
                        {"eos_token_id", {1, 106}},
                        {"dtype", "bfloat16"},
                        {"text_config",
                         {{"model_type", "gemma3_text"},
                          {"vocab_size", 320},
                          {"hidden_size", 64},
                          {"intermediate_size", 96},
                          {"num_hidden_layers", 2},
                          {"num_attention_heads", 4},
                          {"head_dim", 16},
                          {"max_position_embeddings", 512}}},
                        {"vision_config", {{"hidden_size", 32}}}};
  std::ofstream(folder.path() + "/config.json") << wrapper;
  const auto model = ModelOfDirectory(folder.path());
  ASSERT_TRUE(model.ok()) << model.status();
  ModelShape other = *model;
  other.vocab_size = 384;
  for (const ModelShape& each : {*model, other}) {
    const auto form = FormLike(folder.path(), each, "");
    ASSERT_TRUE(form.ok()) << form.status();
    EXPECT_EQ(form->dtype, "BF16");
    const Json config = Json::parse(form->config);
    EXPECT_EQ(config.at("model_type"), "gemma3_text");
    EXPECT_EQ(config.at("architectures"), Json({"Gemma3ForCausalLM"}));
    EXPECT_EQ(config.at("eos_token_id"), Json({1, 106}));
    EXPECT_EQ(config.at("vocab_size"), each.vocab_size);
    EXPECT_FALSE(config.contains("text_config"));
    EXPECT_FALSE(config.contains("vision_config"));
  }
}

}  // namespace
}  // namespace weft
