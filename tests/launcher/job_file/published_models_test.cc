// Reads config.json files as they are published, of families that are planned but not trained yet:
// every key that says something about size or work is read, the number of parameters is the
// published one, and `weft run` names what it cannot do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/job_file/job_yaml.h"
#include "plan/block/tensors.h"
#include "plan/keys/model_keys.h"
#include "plan/spec/layout_rules.h"
#include "tests/launcher/job_file_for_test.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr char kJob[] =
    "job: {name: small}\nmodel: {path: .}\ndata: {format: bytes, train: [{path: corpus.txt}]}\n"
    "training: {seq_len: 32, global_batch_size: 8, steps: 20}\n";

// deepseek-ai/DeepSeek-V3, config.json.
constexpr char kDeepseekV3[] = R"({
  "architectures": ["DeepseekV3ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"}, "aux_loss_alpha": 0.001,
  "bos_token_id": 0, "eos_token_id": 1, "ep_size": 1, "first_k_dense_replace": 3,
  "hidden_act": "silu", "hidden_size": 7168, "initializer_range": 0.02,
  "intermediate_size": 18432, "kv_lora_rank": 512, "max_position_embeddings": 163840,
  "model_type": "deepseek_v3", "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8,
  "n_routed_experts": 256, "n_shared_experts": 1, "norm_topk_prob": true,
  "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61,
  "num_key_value_heads": 128, "num_nextn_predict_layers": 1, "pretraining_tp": 1,
  "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                          "weight_block_size": [128, 128]},
  "rms_norm_eps": 1e-06,
  "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40, "mscale": 1.0,
                   "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096,
                   "type": "yarn"},
  "rope_theta": 10000, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid", "seq_aux": true,
  "tie_word_embeddings": false, "topk_group": 4, "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16", "use_cache": true, "v_head_dim": 128, "vocab_size": 129280})";

// deepseek-ai/DeepSeek-V2-Lite: queries are made of the residual itself.
constexpr char kDeepseekV2Lite[] = R"({
  "model_type": "deepseek_v2", "attention_bias": false, "first_k_dense_replace": 1,
  "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 10944, "kv_lora_rank": 512,
  "max_position_embeddings": 163840, "moe_intermediate_size": 1408, "moe_layer_freq": 1,
  "n_group": 1, "n_routed_experts": 64, "n_shared_experts": 2, "norm_topk_prob": false,
  "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
  "num_key_value_heads": 16, "q_lora_rank": null, "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64, "rms_norm_eps": 1e-06, "rope_theta": 10000,
  "routed_scaling_factor": 1.0, "scoring_func": "softmax", "tie_word_embeddings": false,
  "topk_group": 1, "topk_method": "greedy", "v_head_dim": 128, "vocab_size": 102400})";

// Qwen/Qwen3-235B-A22B, config.json.
constexpr char kQwen3Moe[] = R"({
  "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "bos_token_id": 151643, "decoder_sparse_step": 1, "eos_token_id": 151645, "head_dim": 128,
  "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 12288, "max_position_embeddings": 40960, "max_window_layers": 94,
  "mlp_only_layers": [], "model_type": "qwen3_moe", "moe_intermediate_size": 1536,
  "norm_topk_prob": true, "num_attention_heads": 64, "num_experts": 128,
  "num_experts_per_tok": 8, "num_hidden_layers": 94, "num_key_value_heads": 4,
  "output_router_logits": false, "rms_norm_eps": 1e-06, "rope_scaling": null,
  "rope_theta": 1000000.0, "router_aux_loss_coef": 0.001, "sliding_window": null,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
  "use_sliding_window": false, "vocab_size": 151936})";

// Qwen/Qwen3-8B, config.json.
constexpr char kQwen3[] = R"({
  "model_type": "qwen3", "attention_bias": false, "head_dim": 128, "hidden_act": "silu",
  "hidden_size": 4096, "intermediate_size": 12288, "max_position_embeddings": 40960,
  "max_window_layers": 36, "num_attention_heads": 32, "num_hidden_layers": 36,
  "num_key_value_heads": 8, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
  "sliding_window": null, "tie_word_embeddings": false, "use_sliding_window": false,
  "vocab_size": 151936})";

// EleutherAI/pythia-1b, config.json.
constexpr char kPythia[] = R"({
  "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0,
  "hidden_act": "gelu", "hidden_size": 2048, "initializer_range": 0.02, "intermediate_size": 8192,
  "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "gpt_neox",
  "num_attention_heads": 8, "num_hidden_layers": 16, "rotary_emb_base": 10000, "rotary_pct": 0.25,
  "tie_word_embeddings": false, "torch_dtype": "float16", "transformers_version": "4.24.0",
  "use_cache": true, "use_parallel_residual": true, "vocab_size": 50304})";

// allenai/OLMo-2-1124-7B, config.json.
constexpr char kOlmo2[] = R"({
  "architectures": ["Olmo2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "eos_token_id": 100257, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
  "intermediate_size": 11008, "max_position_embeddings": 4096, "model_type": "olmo2",
  "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 32,
  "pad_token_id": 100277, "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 500000,
  "tie_word_embeddings": false, "torch_dtype": "bfloat16", "use_cache": true,
  "vocab_size": 100352})";

// Nemotron-4 15B as its paper gives it (arXiv:2402.16819, table 1).
constexpr char kNemotron[] = R"({
  "model_type": "nemotron", "attention_bias": false, "head_dim": 128, "hidden_act": "relu2",
  "hidden_size": 6144, "intermediate_size": 24576, "max_position_embeddings": 4096,
  "mlp_bias": false, "norm_eps": 1e-05, "num_attention_heads": 48, "num_hidden_layers": 32,
  "num_key_value_heads": 8, "partial_rotary_factor": 0.5, "rope_theta": 10000.0,
  "tie_word_embeddings": false, "vocab_size": 256000})";

// mistralai/Mixtral-8x7B-v0.1, config.json.
constexpr char kMixtral[] = R"({
  "architectures": ["MixtralForCausalLM"], "attention_dropout": 0.0, "hidden_act": "silu",
  "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
  "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
  "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8,
  "num_local_experts": 8, "output_router_logits": false, "rms_norm_eps": 1e-05,
  "rope_theta": 1000000.0, "router_aux_loss_coef": 0.02, "sliding_window": null,
  "tie_word_embeddings": false, "vocab_size": 32000})";

struct PublishedModel {
  const char* name;
  const char* config;
  int64_t parameters;  // as the model's files hold them, without what no gradient trains
  int64_t active;
  const char* refused;  // by a run
};

constexpr PublishedModel kModels[] = {
    {"DeepSeek-V3", kDeepseekV3, 671'026'404'352, 37'552'282'624, "model.num_local_experts: 256"},
    {"DeepSeek-V2-Lite", kDeepseekV2Lite, 15'706'484'224, 2'661'150'208,
     "model.num_local_experts: 64"},
    {"Qwen3-235B-A22B", kQwen3Moe, 235'093'634'560, 22'190'763'520, "model.num_local_experts: 128"},
    {"Qwen3-8B", kQwen3, 8'190'735'360, 8'190'735'360, ""},
    {"Pythia 1B", kPythia, 1'011'781'632, 1'011'781'632, ""},
    {"OLMo-2 7B", kOlmo2, 7'298'617'344, 7'298'617'344, ""},
    {"Nemotron-4 15B", kNemotron, 15'628'775'424, 15'628'775'424, ""},
    {"Mixtral 8x7B", kMixtral, 46'702'792'704, 12'879'925'248, "model.num_local_experts: 8"},
};

class PublishedModels : public ::testing::TestWithParam<PublishedModel> {
 protected:
  JobFolder folder_;
};

TEST_P(PublishedModels, AreReadAsTheyWerePublished) {
  SCOPED_TRACE(GetParam().name);
  folder_.Write("config.json", GetParam().config);
  const absl::StatusOr<JobFile> file =
      ReadJobText(kJob, folder_.job(), {.sets = {}, .check_files = true});
  ASSERT_TRUE(file.ok()) << file.status();
  const ModelShape& model = file->job.model;
  EXPECT_TRUE(CheckModel(model).ok()) << CheckModel(model);
  EXPECT_EQ(ParameterCount(model), GetParam().parameters);
  EXPECT_EQ(ActiveParameterCount(model), GetParam().active);
  const std::vector<SpecIssue> refused = EngineIssues(model);
  ASSERT_EQ(refused.empty(), absl::string_view(GetParam().refused).empty());
  if (refused.empty()) return;
  EXPECT_THAT(refused[0].key + ": " + refused[0].message, HasSubstr(GetParam().refused));
}

TEST_P(PublishedModels, AreTheSameOnceTheyWereWritten) {
  SCOPED_TRACE(GetParam().name);
  folder_.Write("config.json", GetParam().config);
  const absl::StatusOr<JobFile> file =
      ReadJobText(kJob, folder_.job(), {.sets = {}, .check_files = true});
  ASSERT_TRUE(file.ok()) << file.status();
  Issues issues;
  std::vector<std::string> notes;
  const ModelShape again = ReadModel(ModelTree(file->job.model), nullptr, {}, &issues, &notes);
  EXPECT_TRUE(issues.empty()) << issues.Text();
  EXPECT_EQ(again, file->job.model);
}

INSTANTIATE_TEST_SUITE_P(Families, PublishedModels, ::testing::ValuesIn(kModels));

}  // namespace
}  // namespace weft
