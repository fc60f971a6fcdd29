// The config.json files of fifty models of 2024 to 2026 (published/configs.jsonl, each with its
// source): each is read, or refused by the name of what weft lacks. published/configs.py compares
// the rows with the files as they were published, by hand. And the rule for all others' files: what
// is harmless is taken, what would make another model is refused by its key.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/huggingface.h"
#include "launcher/job_file/job_yaml.h"
#include "plan/spec/layout_rules.h"
#include "tests/launcher/job_file_for_test.h"
#include "tests/places.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kPlainJob[] =
    "job: {name: small}\nmodel: {path: .}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
    "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";

class OthersConfigs : public ::testing::Test {
 protected:
  absl::StatusOr<JobFile> Read(const Json& config, std::vector<std::string> sets = {}) {
    folder_.Write("config.json", config.dump(1));
    return ReadJobText(kPlainJob, folder_.job(), {.sets = std::move(sets), .check_files = true});
  }
  std::string Refusal(const Json& config, std::vector<std::string> sets = {}) {
    const auto file = Read(config, std::move(sets));
    return file.ok() ? "accepted" : std::string(file.status().message());
  }
  // The notes about the config alone.
  std::vector<std::string> Notes(const Json& config) {
    const auto file = Read(config);
    EXPECT_TRUE(file.ok()) << file.status();
    std::vector<std::string> notes;
    for (const std::string& note : file.ok() ? file->notes : std::vector<std::string>()) {
      const size_t at = note.find("config.json:");
      if (at != std::string::npos) notes.push_back(note.substr(at));
    }
    return notes;
  }

  JobFolder folder_;
};

Json With(Json config, const Json& more) {
  for (const auto& [key, value] : more.items()) config[key] = value;
  return config;
}

// HuggingFaceTB/SmolLM2-135M, config.json, small.
const Json& SmolLlama() {
  static const Json& config = *new Json(Json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
    "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "silu", "hidden_size": 64,
    "initializer_range": 0.041666666666666664, "intermediate_size": 96, "is_llama_config": true,
    "max_position_embeddings": 8192, "mlp_bias": false, "model_type": "llama",
    "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
    "pretraining_tp": 1, "rms_norm_eps": 1e-05, "rope_interleaved": false, "rope_scaling": null,
    "rope_theta": 100000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "transformers.js_config": {"kv_cache_dtype": {"q4f16": "float16"}},
    "transformers_version": "4.40.1", "use_cache": true, "vocab_size": 49152})"));
  return config;
}

const Json& SmallGpt2() {
  static const Json& config = *new Json(Json::parse(R"({
    "model_type": "gpt2", "vocab_size": 50257, "n_positions": 1024, "n_embd": 64, "n_layer": 2,
    "n_head": 4, "activation_function": "gelu_new"})"));
  return config;
}

TEST_F(OthersConfigs, OfFiftyModelsAreReadOrRefusedByWhatIsMissing) {
  std::ifstream stream(SourcePath("/tests/launcher/job_file/published/configs.jsonl"));
  int rows = 0;
  int accepted = 0;
  for (std::string line; std::getline(stream, line); ++rows) {
    const Json row = Json::parse(line);
    SCOPED_TRACE(row["name"].get<std::string>());
    EXPECT_FALSE(row["source"].get<std::string>().empty());
    const auto refused = row["refused"].get<std::string>();
    const std::string found = Refusal(row["config"]);
    if (refused.empty()) {
      EXPECT_EQ(found, "accepted");
      ++accepted;
    } else {
      EXPECT_THAT(found, HasSubstr(refused));
    }
  }
  EXPECT_EQ(rows, 50);
  EXPECT_EQ(accepted, 15);
}

// The file says kimi_k2, its code is DeepSeek-V3's.
TEST_F(OthersConfigs, OfKimiK2ArePlannedAsDeepseekV3) {
  std::ifstream stream(SourcePath("/tests/launcher/job_file/published/configs.jsonl"));
  for (std::string line; std::getline(stream, line);) {
    const Json row = Json::parse(line);
    if (row["name"] != "Kimi-K2-Instruct") continue;
    EXPECT_THAT(
        Refusal(row["config"]),
        HasSubstr("its shape is that of a deepseek_v3: --set model.model_type=deepseek_v3"));
    const auto file = Read(row["config"], {"model.model_type=deepseek_v3"});
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ(file->job.model.num_experts, 384);
    return;
  }
  FAIL() << "there is no row of it";
}

TEST_F(OthersConfigs, AreTakenThoughTheyHoldKeysThatNobodyReads) {
  const std::vector<std::string> notes = Notes(SmolLlama());
  EXPECT_THAT(notes, Contains(HasSubstr("is_llama_config: true is passed over: transformers does "
                                        "not read it of a llama model")));
  EXPECT_THAT(notes, Contains(HasSubstr("transformers.js_config: a map is passed over")));
  EXPECT_EQ(notes.size(), 2) << absl::StrJoin(notes, "\n");
  const auto file = Read(SmolLlama());
  EXPECT_TRUE(RunIssues(file->job).empty());
  // Such keys change models of other types; transformers has no use for them in this one.
  for (const Json& more : {Json{{"sliding_window", 16}}, Json{{"num_local_experts", 8}},
                           Json{{"use_qk_norm", true}}, Json{{"clip_qkv", 8.0}}}) {
    const auto with = Read(With(SmolLlama(), more));
    ASSERT_TRUE(with.ok()) << with.status();
    EXPECT_EQ(with->job.model, file->job.model) << more;
  }
  // Its own code may read them.
  EXPECT_THAT(
      Refusal(With(SmolLlama(), {{"clip_qkv", 8.0}, {"auto_map", {{"AutoModel", "a.B"}}}})),
      HasSubstr("model.clip_qkv: unknown key of a llama model, which its own code (auto_map) "
                "may read"));
}

TEST_F(OthersConfigs, AreTakenWithOneThingInTwoSpellings) {
  const Json llama3 = {{"rope_type", "llama3"},
                       {"factor", 8.0},
                       {"low_freq_factor", 1.0},
                       {"high_freq_factor", 4.0},
                       {"original_max_position_embeddings", 8192}};
  Json parameters = With(llama3, {{"rope_theta", 500000.0}});
  parameters["factor"] = 8;
  const Json both =
      With(SmolLlama(),
           {{"rope_theta", 500000}, {"rope_scaling", llama3}, {"rope_parameters", parameters}});
  const auto file = Read(both);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->job.model.rope_theta, 500000);
  EXPECT_EQ(file->job.model.rope_scaling.factor, 8);
  for (const Json& nothing : {Json(), Json(false), Json::object(), Json("")}) {
    const auto one = Read(With(both, {{"rope_scaling", nothing}}));
    ASSERT_TRUE(one.ok()) << nothing << one.status();
    EXPECT_EQ(one->job.model, file->job.model) << nothing;
  }
  EXPECT_THAT(Refusal(With(both, {{"rope_theta", 10000}})),
              HasSubstr("model.rope_theta: found 500000.0, but 10000 on line"));
  parameters["factor"] = 32;
  EXPECT_THAT(Refusal(With(both, {{"rope_parameters", parameters}})),
              HasSubstr("model.rope_parameters: says something else than rope_scaling"));
  // As transformers 5 writes them.
  const Json five =
      With(SmolLlama(), {{"rope_parameters", {{"rope_theta", 100000}, {"rope_type", "default"}}},
                         {"dtype", "bfloat16"},
                         {"head_dim", nullptr},
                         {"layer_types", Json::array()}});
  EXPECT_EQ(Refusal(five), "accepted");
  EXPECT_EQ(Refusal(With(SmallGpt2(), {{"hidden_size", 64}, {"num_attention_heads", 4}})),
            "accepted");
  EXPECT_THAT(Refusal(With(SmallGpt2(), {{"hidden_size", 65}})),
              HasSubstr("model.hidden_size: is another name of n_embd, which stands on line"));
}

TEST_F(OthersConfigs, AreRefusedByTheKeyThatWouldMakeAnotherModel) {
  const std::pair<Json, const char*> cases[] = {
      {{{"rope_scaling", {{"rope_type", "longrope"}, {"factor", 4.0}}}},
       "model.rope_scaling: longrope is not supported yet"},
      {{{"rope_scaling", {{"rope_type", "yarn"}, {"factor", 4.0}}}},
       "model.rope_scaling: does not say original_max_position_embeddings"},
      {{{"partial_rotary_factor", 0.5}},
       "model.partial_rotary_factor: found 0.5, which means rotary"},
      {{{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}},
       "model.quantization_config: found a map (gptq), which means weights in a quantized format"},
      {{{"mlp_bias", true}}, "model.mlp_bias: true is not supported"},
      {{{"hidden_act", "gelu"}}, "model.hidden_act"},
      {{{"rope_parameters", {{"full_attention", {{"rope_theta", 1e4}}}}}},
       "model.rope_parameters: a map by kind of block is not supported yet"},
  };
  for (const auto& [more, says] : cases) {
    EXPECT_THAT(Refusal(With(SmolLlama(), more)), HasSubstr(says)) << more;
  }
  const Json harmless[] = {
      {{"partial_rotary_factor", 1.0}},
      {{"quantization_config", nullptr}},
      {{"pruned_heads", Json::object()}},
      {{"hidden_act", "swish"}},
      {{"rope_scaling", {{"type", "linear"}, {"factor", 1.0}}}},
      {{"rope_scaling", {{"rope_type", "default"}, {"attention_factor", nullptr}}}},
      {{"attention_dropout", false}},
      {{"head_dim", false}},
      {{"mlp_bias", nullptr}},
  };
  const ModelShape plain = Read(SmolLlama())->job.model;
  for (const Json& more : harmless) {
    const auto file = Read(With(SmolLlama(), more));
    ASSERT_TRUE(file.ok()) << more << file.status();
    EXPECT_EQ(file->job.model, plain) << more;
  }
}

TEST_F(OthersConfigs, MayHoldNumbersThatPythonAloneWrites) {
  const Json more = Json::parse(R"({"limits": [0.5, 0.25, 0.125], "name": "NaN \" Infinity"})");
  std::string text = With(SmolLlama(), more).dump(1);
  for (const auto& [number, word] :
       {std::pair{"0.5", "Infinity"}, std::pair{"0.25", "-Infinity"}, std::pair{"0.125", "NaN"}}) {
    text.replace(text.find(number), std::string(number).size(), word);
  }
  folder_.Write("config.json", text);
  const auto file = ReadJobText(kPlainJob, folder_.job(), {});
  EXPECT_TRUE(file.ok()) << file.status() << text;
}

// A silent file of mistral says another thing than a silent one of llama.
TEST_F(OthersConfigs, HaveTheDefaultsOfTheirType) {
  const Json mistral = {
      {"model_type", "mistral"},        {"vocab_size", 32000},    {"hidden_size", 64},
      {"intermediate_size", 96},        {"num_hidden_layers", 2}, {"num_attention_heads", 8},
      {"max_position_embeddings", 8192}};
  EXPECT_EQ(Refusal(mistral), "accepted");
  EXPECT_EQ(Read(mistral)->job.model.num_kv_heads, 8);
  EXPECT_EQ(Read(mistral)->job.model.window, 4096);
  EXPECT_EQ(Read(With(mistral, {{"sliding_window", nullptr}}))->job.model.window, 0);
}

// Rules of a type, lists, and switches; transformers' configurations say the same of these.
TEST_F(OthersConfigs, SayWhichBlocksSlideAndWhichHaveNoPositions) {
  using enum AttentionSpan;
  const Json small = {{"vocab_size", 320},
                      {"hidden_size", 64},
                      {"intermediate_size", 96},
                      {"num_hidden_layers", 4},
                      {"num_attention_heads", 4},
                      {"num_key_value_heads", 2},
                      {"max_position_embeddings", 8192},
                      {"sliding_window", 12}};
  const auto model = [&](const char* type, const Json& more) {
    const auto file = Read(With(With(small, {{"model_type", type}}), more));
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->job.model : ModelShape();
  };
  EXPECT_EQ(model("qwen2", {}).window, 0) << "not switched on";
  const Json used = {{"use_sliding_window", true}, {"max_window_layers", 3}};
  EXPECT_EQ(model("qwen2", used).window, 12);
  EXPECT_EQ(model("qwen2", used).spans, (std::vector{kFull, kFull, kFull, kSliding}));
  EXPECT_EQ(model("qwen3", With(used, {{"max_window_layers", 0}})).spans.size(), 0u) << "all do";
  EXPECT_EQ(model("qwen3", {{"use_sliding_window", true}}).window, 0) << "from block 28 on";
  const Json listed = With(
      used, {{"layer_types",
              {"sliding_attention", "full_attention", "full_attention", "sliding_attention"}}});
  EXPECT_EQ(model("qwen2", listed).spans, (std::vector{kSliding, kFull, kFull, kSliding}));
  const ModelShape smol = model("smollm3", {{"use_sliding_window", true}});
  EXPECT_EQ(smol.turns, (std::vector{true, true, true, false}));
  EXPECT_EQ(smol.spans, (std::vector{kFull, kFull, kFull, kSliding}));
  EXPECT_EQ(smol.rope_theta, 2e6);
  EXPECT_TRUE(smol.tied_embeddings);
  const ModelShape own = model("smollm3", {{"no_rope_layers", {0, 1, 0, 1}}});
  EXPECT_EQ(own.turns, (std::vector{false, true, false, true}));
  EXPECT_EQ(own.window, 0);
  EXPECT_TRUE(model("smollm3", {{"no_rope_layers", {1, 1, 1, 1}}}).turns.empty());
  // They are read back as they were written.
  for (const ModelShape& each : {model("qwen2", used), model("qwen2", listed), model("phi3", {}),
                                 smol, own, model("qwen3", With(used, {{"max_window_layers", 0}})),
                                 model("smollm3", {{"no_rope_layers", {1, 1, 1, 1}}})}) {
    const auto again = Read(Json::parse(HuggingFaceConfig(each)));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->job.model, each) << HuggingFaceConfig(each);
  }
  const auto says = [&](const char* type, const Json& more) {
    return Refusal(With(With(With(small, {{"model_type", type}}), used), more));
  };
  EXPECT_THAT(says("qwen2", {{"layer_types", {"full_attention", "sliding_attention"}}}),
              HasSubstr("model.layer_types: says something of 2 blocks; the model has 4"));
  EXPECT_THAT(
      says("qwen2", {{"layer_types", {"chunked_attention"}}}),
      HasSubstr("model.layer_types: found the text \"chunked_attention\" in it, which is not"));
  EXPECT_THAT(
      says("qwen2", {{"max_window_layers", "all"}}),
      HasSubstr("model.max_window_layers: found the text \"all\"; expected a whole number"));
  EXPECT_THAT(
      says("smollm3", {{"no_rope_layers", {1, 2, 1, 1}}}),
      HasSubstr("model.no_rope_layers: found a list of 4; expected a list with 1 for each"));
  EXPECT_THAT(
      says("smollm3", {{"use_sliding_window", "yes"}}),
      HasSubstr("model.use_sliding_window: found the text \"yes\"; expected true or false"));
}

// A small model of the type, with rope_theta and a window.
Json OfType(const char* type, const Json& more) {
  const Json small = {
      {"model_type", type},       {"vocab_size", 320},      {"hidden_size", 64},
      {"intermediate_size", 96},  {"num_hidden_layers", 7}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2}, {"head_dim", 16},         {"max_position_embeddings", 8192},
      {"rope_theta", 1000000.0},  {"sliding_window", 12}};
  return With(small, more);
}

// A gemma's defaults and rules are not those of a llama; transformers' configurations have the
// same.
TEST_F(OthersConfigs, OfGemmasAndGlmsSayWhatTheirTypesDo) {
  using enum AttentionSpan;
  const auto model = [&](const char* type, const Json& more) {
    const auto file = Read(OfType(type, more));
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->job.model : ModelShape();
  };
  const ModelShape gemma = model("gemma", {{"hidden_act", "gelu"}});
  EXPECT_TRUE(gemma.tied_embeddings && gemma.scaled_embeddings && gemma.norm_offset == 1);
  EXPECT_EQ(gemma.window, 0) << "transformers does not read it of a gemma";
  const ModelShape gemma2 = model("gemma2", {{"hidden_activation", "gelu_pytorch_tanh"}});
  EXPECT_EQ(gemma2.spans,
            (std::vector{kSliding, kFull, kSliding, kFull, kSliding, kFull, kSliding}));
  EXPECT_EQ(gemma2.attention_cap, 50);
  EXPECT_EQ(gemma2.logit_cap, 30);
  EXPECT_EQ(gemma2.query_scalar, 256);
  const ModelShape uncapped = model("gemma2", {{"attn_logit_softcapping", nullptr}});
  EXPECT_EQ(uncapped.attention_cap, 0);
  const ModelShape gemma3 = model("gemma3_text", {{"attn_logit_softcapping", 50.0}});
  EXPECT_EQ(gemma3.spans,
            (std::vector{kSliding, kSliding, kSliding, kSliding, kSliding, kFull, kSliding}));
  EXPECT_EQ(gemma3.sliding_rope_theta, 10000);
  EXPECT_EQ(gemma3.attention_cap, 0) << "transformers never applies it";
  const Json by_span = {
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 500000.0}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1234.0}}}}}};
  Json newer = OfType("gemma3_text", by_span);
  newer.erase("rope_theta");
  const auto read = Read(newer);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.model.rope_theta, 500000);
  EXPECT_EQ(read->job.model.rope_scaling.factor, 8);
  EXPECT_EQ(read->job.model.sliding_rope_theta, 1234);
  const ModelShape glm4 = model("glm4", {});
  EXPECT_TRUE(glm4.attention_bias && glm4.interleaved_rotation && glm4.post_norms);
  EXPECT_EQ(glm4.rotary_dims(), 8);
  const ModelShape glm = model(
      "glm",
      {{"rope_parameters",
        {{"rope_type", "default"}, {"rope_theta", 1000000.0}, {"partial_rotary_factor", 0.25}}}});
  EXPECT_EQ(glm.rotary_dims(), 4);
  for (const ModelShape& each : {gemma, gemma2, uncapped, gemma3, read->job.model, glm4, glm,
                                 model("gemma3_text", {{"sliding_window", nullptr}})}) {
    const auto again = Read(Json::parse(HuggingFaceConfig(each)));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->job.model, each) << HuggingFaceConfig(each);
  }
}

// Gemma-3-4B's as it is published: what its text_config leaves out is as transformers has it.
TEST_F(OthersConfigs, OfAWrapperAreThoseOfItsTextModel) {
  const Json wrapper = {
      {"model_type", "gemma3"},
      {"architectures", {"Gemma3ForConditionalGeneration"}},
      {"eos_token_id", {1, 106}},
      {"text_config",
       {{"hidden_size", 2560},
        {"intermediate_size", 10240},
        {"model_type", "gemma3_text"},
        {"num_hidden_layers", 34},
        {"rope_scaling", {{"factor", 8.0}, {"rope_type", "linear"}}},
        {"sliding_window", 1024}}},
      {"vision_config", {{"hidden_size", 1152}, {"model_type", "siglip_vision_model"}}}};
  const auto read = Read(wrapper);
  ASSERT_TRUE(read.ok()) << read.status();
  const ModelShape& model = read->job.model;
  EXPECT_EQ(model.architecture, Architecture::kGemma3);
  EXPECT_EQ(model.vocab_size, 262208);
  EXPECT_EQ(model.num_heads, 8);
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_EQ(model.window, 1024);
  EXPECT_EQ(model.rope_theta, 1e6);
  EXPECT_EQ(model.rope_scaling.factor, 8);
  EXPECT_THAT(read->notes, testing::Contains(HasSubstr("its vision tower is left out")));
  Json other = wrapper;
  other["text_config"]["model_type"] = "siglip";
  EXPECT_THAT(Refusal(other), HasSubstr("gemma3 is not supported yet: it has a vision tower"));
}

TEST_F(OthersConfigs, OfGemmasAndGlmsAreRefusedByName) {
  const Json stretched = {
      {"rope_parameters",
       {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 1000000.0}}},
        {"sliding_attention",
         {{"rope_type", "linear"}, {"factor", 8.0}, {"rope_theta", 1234.0}}}}}};
  EXPECT_THAT(Refusal(OfType("gemma3_text", stretched)),
              HasSubstr("model.rope_parameters: found rope_type linear of sliding_attention"));
  for (const char* type : {"gemma3_text", "olmo3"}) {
    EXPECT_THAT(
        Refusal(
            OfType(type, {{"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 50.0}}}})),
        HasSubstr("model.rope_parameters: found one map for all blocks; write one for each"));
  }
  EXPECT_THAT(Refusal(OfType("cohere2", {{"sliding_window", nullptr}})),
              HasSubstr("model.sliding_window: missing; a cohere2 has positions in blocks"));
  EXPECT_THAT(Refusal(OfType("gemma2", {{"hidden_activation", "relu"}})),
              HasSubstr("model.hidden_activation: the text \"relu\" is not supported yet"));
  EXPECT_THAT(Refusal(OfType("gemma", {{"use_bidirectional_attention", true}})),
              HasSubstr("model.use_bidirectional_attention: true is not supported"));
  EXPECT_THAT(Refusal(OfType("gemma3_text", {{"query_pre_attn_scalar", 30.5}})),
              HasSubstr("model.query_pre_attn_scalar: 30.5 is out of range; use a whole number"));
  const Json twice = {
      {"partial_rotary_factor", 0.5},
      {"rope_parameters",
       {{"rope_type", "default"}, {"rope_theta", 1000000.0}, {"partial_rotary_factor", 0.25}}}};
  EXPECT_THAT(Refusal(OfType("glm4", twice)), HasSubstr("model.partial_rotary_factor: found 0.25"));
  EXPECT_THAT(Refusal(OfType("olmo", {})), Not(HasSubstr("did you mean")));
  EXPECT_THAT(Refusal(OfType("glm4", {{"partial_rotary_factor", 0.2}})),
              HasSubstr("0.2 of a head's 16 elements are 3"));
}

// Each is read as its type has it, and written so that it is read the same again.
TEST_F(OthersConfigs, OfNeoxesOlmosAndCoheresAreReadAsTheirTypesHaveThem) {
  using enum AttentionSpan;
  const auto model = [&](const char* type, const Json& more) {
    const auto file = Read(OfType(type, more));
    EXPECT_TRUE(file.ok()) << file.status();
    return file.ok() ? file->job.model : ModelShape();
  };
  const ModelShape neox =
      model("gpt_neox",
            {{"hidden_act", "gelu"}, {"rotary_emb_base", 20000}, {"num_key_value_heads", nullptr}});
  EXPECT_TRUE(neox.parallel_residual && neox.attention_bias && neox.ffn_bias);
  EXPECT_EQ(neox.activation, Activation::kErfGelu);
  EXPECT_EQ(neox.rope_theta, 20000) << "rope_theta beside it is not read";
  EXPECT_EQ(neox.rotary_dims(), 4);
  EXPECT_EQ(neox.norm_eps, 1e-5);
  const ModelShape in_sequence = model(
      "gpt_neox",
      {{"hidden_act", "gelu"},
       {"use_parallel_residual", false},
       {"attention_bias", false},
       {"rope_parameters",
        {{"rope_type", "default"}, {"rope_theta", 30000.0}, {"partial_rotary_factor", 0.5}}}});
  EXPECT_FALSE(in_sequence.parallel_residual || in_sequence.attention_bias);
  EXPECT_EQ(in_sequence.rope_theta, 30000);
  EXPECT_EQ(in_sequence.rotary_dims(), 8);
  const ModelShape olmo2 = model("olmo2", {});
  EXPECT_TRUE(olmo2.wide_qk_norms && olmo2.post_norms && !olmo2.pre_norms);
  const Json yarn = {
      {"rope_type", "yarn"}, {"factor", 8.0}, {"original_max_position_embeddings", 512}};
  const ModelShape olmo3 = model("olmo3", {{"rope_scaling", yarn}, {"rope_theta", 700000.0}});
  EXPECT_EQ(olmo3.spans,
            (std::vector{kSliding, kSliding, kSliding, kFull, kSliding, kSliding, kSliding}));
  EXPECT_EQ(olmo3.sliding_rope_theta, 500000) << "whatever rope_theta says";
  EXPECT_EQ(olmo3.rotations()[0].theta, 700000);
  EXPECT_EQ(olmo3.rotations()[1].scaling, RopeScaling());
  Json by_span = OfType(
      "olmo3", {{"rope_parameters",
                 {{"full_attention", {{"rope_type", "default"}, {"rope_theta", 700000.0}}},
                  {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1234.0}}}}}});
  by_span.erase("rope_theta");
  const auto read = Read(by_span);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->job.model.sliding_rope_theta, 1234);
  const ModelShape ministral = model(
      "ministral", {{"layer_types",
                     {"full_attention", "sliding_attention", "full_attention", "full_attention",
                      "full_attention", "full_attention", "full_attention"}}});
  EXPECT_EQ(ministral.window_of(0), 0);
  EXPECT_GT(ministral.window_of(1), 0);
  const ModelShape cohere2 = model("cohere2", {});
  EXPECT_TRUE(cohere2.shares_norm && cohere2.tied_embeddings && cohere2.interleaved_rotation);
  EXPECT_EQ(cohere2.logit_scale, 0.0625);
  EXPECT_EQ(cohere2.turns, (std::vector{true, true, true, false, true, true, true}));
  for (const ModelShape& each : {neox, in_sequence, olmo2, olmo3, read->job.model, ministral,
                                 cohere2, model("cohere2", {{"logit_scale", 2}})}) {
    const auto again = Read(Json::parse(HuggingFaceConfig(each)));
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->job.model, each) << HuggingFaceConfig(each);
  }
}

TEST_F(OthersConfigs, OfNeoxesOlmosAndCoheresAreRefusedByName) {
  EXPECT_THAT(Refusal(OfType("gpt_neox", {{"hidden_act", "gelu_new"}})),
              HasSubstr("model.hidden_act: the text \"gelu_new\" is not supported yet; use gelu"));
  const auto dropped = Read(OfType("gpt_neox", {{"hidden_act", "gelu"}, {"hidden_dropout", 0.1}}));
  EXPECT_THAT(dropped->notes, testing::Contains(HasSubstr("hidden_dropout: 0.1 is planned as 0")));
  EXPECT_THAT(
      Refusal(OfType("olmo2", {}), {"model.use_parallel_residual=true"}),
      HasSubstr("model.use_parallel_residual: true with norms behind the branches, which is not"));
}

// A config.json says one half and a person the other.
TEST_F(OthersConfigs, AreToldApartFromWhatAPersonSaysOfWindows) {
  const Json small = {{"model_type", "qwen3"},    {"vocab_size", 320},
                      {"hidden_size", 64},        {"intermediate_size", 96},
                      {"num_hidden_layers", 4},   {"num_attention_heads", 4},
                      {"num_key_value_heads", 2}, {"max_position_embeddings", 8192},
                      {"sliding_window", 12},     {"max_window_layers", 3}};
  const Json used = With(small, {{"use_sliding_window", true}});
  EXPECT_THAT(
      Refusal(small, {"model.sliding_window=7"}),
      HasSubstr("model.sliding_window: 7 is switched off by use_sliding_window: false of "));
  EXPECT_EQ(Read(small, {"model.use_sliding_window=true"})->job.model.window, 12);
  EXPECT_EQ(Read(used, {"model.sliding_window=null"})->job.model.window, 0);
  EXPECT_EQ(Read(used, {"model.use_sliding_window=false"})->job.model.window, 0);
  const Json listed = With(small, {{"layer_types", std::vector<std::string>(4, "full_attention")}});
  EXPECT_EQ(Refusal(listed, {"model.num_hidden_layers=2"}), "accepted") << "it is cut down";
  Json silent = used;
  silent.erase("sliding_window");
  EXPECT_EQ(Read(silent)->job.model.window, 4096);
  Json none = With(used, {{"layer_types", std::vector<std::string>(4, "sliding_attention")}});
  none["sliding_window"] = nullptr;
  EXPECT_THAT(Refusal(none),
              HasSubstr("model.layer_types: has sliding_attention without sliding_window"));
}

TEST_F(OthersConfigs, OfOtherTypesAreNeverCorrected) {
  const auto says = [&](const std::string& type) {
    return Refusal(With(SmolLlama(), {{"model_type", type}}));
  };
  for (const char* other :
       {"llama4", "nemotron_h", "deepseek_v32", "deepseek_v4", "qwen2_5_omni", "mllama", "llava",
        "ministral3", "pixtral", "gpt_neo", "qwen3_next", "phi3small"}) {
    EXPECT_THAT(says(other), HasSubstr(absl::StrCat(other, " is not supported yet")));
    EXPECT_THAT(says(other), ::testing::Not(HasSubstr("did you mean"))) << other;
  }
  for (const auto& [slip, meant] :
       {std::pair{"lama", "llama"}, std::pair{"Llama", "llama"}, std::pair{"gpt-2", "gpt2"},
        std::pair{"gtp2", "gpt2"}, std::pair{"mixtrl", "mixtral"}}) {
    EXPECT_THAT(says(slip), HasSubstr(absl::StrCat("did you mean ", meant, "?"))) << slip;
  }
  EXPECT_THAT(says("kimi_k2"), HasSubstr("deepseek_v3"));
}

}  // namespace
}  // namespace weft
