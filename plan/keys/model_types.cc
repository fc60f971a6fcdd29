#include "plan/keys/model_types.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "plan/spec/nearest.h"

namespace weft {
namespace {

constexpr double kOlmo3Theta = 500000;  // of sliding blocks, whatever rope_theta says

constexpr absl::string_view kRouting =
    "aux_loss_alpha ep_size moe_router_dtype n_group norm_topk_prob "
    "num_nextn_predict_layers quantization_config rope_interleave routed_scaling_factor "
    "scoring_func seq_aux topk_group topk_method max_window_layers";

// Jiang et al., arXiv:2401.04088, table 1.
void SetMixtral(ModelShape& model) {
  model.num_experts = 8;
  model.experts_per_token = 2;
}

// transformers' NemotronConfig.
void SetNemotron(ModelShape& model) {
  model.norm_eps = 1e-5;
  model.rotary_share = 0.5;
}

// transformers' GraniteConfig: scores are not divided where it says nothing.
void SetGranite(ModelShape& model) {
  model.attention_multiplier = 1;
}

// transformers' SmolLM3Config.
void SetSmollm3(ModelShape& model) {
  model.tied_embeddings = true;
}

// transformers' GemmaConfig, Gemma2Config, Gemma3TextConfig.
void SetGemma(ModelShape& model) {
  model.tied_embeddings = true;
}
void SetGemma2(ModelShape& model) {
  SetGemma(model);
  model.query_scalar = 256;
  model.attention_cap = 50;
  model.logit_cap = 30;
}
void SetGemma3(ModelShape& model) {
  SetGemma(model);
  model.sliding_rope_theta = 10000;
  model.query_scalar = 256;
}

// transformers' GlmConfig, Glm4Config.
void SetGlm(ModelShape& model) {
  model.norm_eps = 1.5625e-7;
  model.attention_bias = true;
  model.rotary_share = 0.5;
}

// transformers' GPTNeoXConfig.
void SetGptNeox(ModelShape& model) {
  model.norm_eps = 1e-5;
  model.attention_bias = true;
  model.rotary_share = 0.25;
  model.parallel_residual = true;
}

// transformers' Olmo2Config, Olmo3Config.
void SetOlmo2(ModelShape& model) {
  model.norm_eps = 1e-5;
}
void SetOlmo3(ModelShape& model) {
  SetOlmo2(model);
  model.rope_theta = kOlmo3Theta;
  model.sliding_rope_theta = kOlmo3Theta;
}

// transformers' Cohere2Config.
void SetCohere2(ModelShape& model) {
  model.norm_eps = 1e-5;
  model.tied_embeddings = true;
  model.logit_scale = 0.0625;
}

// Lozhkov et al., arXiv:2402.19173, table 3.
void SetStarcoder2(ModelShape& model) {
  model.norm_eps = 1e-5;
  model.tied_embeddings = true;
}

// The lists follow transformers' configurations (5.24.0, 4.57.6).
#define WEFT_COMMON_READS                                                           \
  "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads " \
  "num_key_value_heads max_position_embeddings initializer_range head_dim "         \
  "tie_word_embeddings attention_dropout "
#define WEFT_LLAMA_READS WEFT_COMMON_READS "hidden_act "
#define WEFT_DEEPSEEK_READS                                                              \
  WEFT_LLAMA_READS                                                                       \
  "rms_norm_eps attention_bias mlp_bias first_k_dense_replace kv_lora_rank q_lora_rank " \
  "n_routed_experts num_experts num_local_experts n_shared_experts qk_nope_head_dim "    \
  "qk_rope_head_dim v_head_dim num_experts_per_tok moe_intermediate_size moe_layer_freq"

constexpr ModelType kTypes[] = {
    {.architecture = Architecture::kGpt2,
     .class_name = "GPT2LMHeadModel",
     .family = ModelFamily::kGpt2,
     .reads = "vocab_size n_positions max_position_embeddings n_embd hidden_size n_layer "
              "num_hidden_layers n_head num_attention_heads n_inner layer_norm_epsilon "
              "initializer_range tie_word_embeddings activation_function resid_pdrop embd_pdrop "
              "attn_pdrop scale_attn_weights scale_attn_by_inverse_layer_idx add_cross_attention"},
    {.architecture = Architecture::kLlama,
     .class_name = "LlamaForCausalLM",
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias mlp_bias"},
    {.architecture = Architecture::kMistral,
     .class_name = "MistralForCausalLM",
     .reads = WEFT_LLAMA_READS "rms_norm_eps sliding_window",
     .defaults = "num_key_value_heads=8 sliding_window=4096"},
    {.architecture = Architecture::kMixtral,
     .set_defaults = SetMixtral,
     .reads = WEFT_LLAMA_READS "rms_norm_eps sliding_window num_local_experts num_experts "
                               "num_experts_per_tok router_jitter_noise",
     .defaults = "num_key_value_heads=8 rms_norm_eps=1e-05 rope_theta=1000000"},
    {.architecture = Architecture::kQwen2,
     .class_name = "Qwen2ForCausalLM",
     .reads = WEFT_LLAMA_READS "rms_norm_eps use_sliding_window sliding_window max_window_layers "
                               "layer_types",
     .defaults = "num_key_value_heads=32 sliding_window=4096",
     .slides = SlidingBlocks::kFrom},
    {.architecture = Architecture::kQwen3,
     .class_name = "Qwen3ForCausalLM",
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias use_sliding_window sliding_window "
                               "max_window_layers layer_types",
     .defaults = "num_key_value_heads=32 head_dim=128 sliding_window=4096",
     .slides = SlidingBlocks::kFrom},
    {.architecture = Architecture::kQwen3Moe,
     .needs = "num_local_experts num_experts_per_tok moe_intermediate_size",
     .passed_over = kRouting,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias use_sliding_window sliding_window "
                               "decoder_sparse_step moe_intermediate_size num_experts_per_tok "
                               "num_experts num_local_experts mlp_only_layers",
     .defaults = "num_key_value_heads=4 sliding_window=4096"},
    // Queries, keys and values are one tensor of its files, gate and up another one.
    {.architecture = Architecture::kPhi3,
     .class_name = "Phi3ForCausalLM",
     .reads = WEFT_LLAMA_READS
     "rms_norm_eps sliding_window resid_pdrop embd_pdrop partial_rotary_factor",
     .defaults = "rms_norm_eps=1e-05"},
    {.architecture = Architecture::kStarcoder2,
     .class_name = "Starcoder2ForCausalLM",
     .set_defaults = SetStarcoder2,
     .reads = WEFT_LLAMA_READS "norm_epsilon sliding_window use_bias residual_dropout "
                               "embedding_dropout",
     .defaults = "num_key_value_heads=2 initializer_range=0.018042"},
    {.architecture = Architecture::kGranite,
     .class_name = "GraniteForCausalLM",
     .set_defaults = SetGranite,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias mlp_bias embedding_multiplier "
                               "residual_multiplier attention_multiplier logits_scaling"},
    {.architecture = Architecture::kSeedOss,
     .class_name = "SeedOssForCausalLM",
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias attention_out_bias mlp_bias "
                               "residual_dropout",
     .defaults = "num_key_value_heads=8 head_dim=128 attention_bias=true attention_dropout=0.1 "
                 "residual_dropout=0.1"},
    {.architecture = Architecture::kSmollm3,
     .class_name = "SmolLM3ForCausalLM",
     .set_defaults = SetSmollm3,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias mlp_bias use_sliding_window "
                               "sliding_window layer_types no_rope_layers no_rope_layer_interval",
     .defaults = "num_key_value_heads=4 rope_theta=2000000",
     .slides = SlidingBlocks::kUnturned,
     .has_unturned = true},
    {.architecture = Architecture::kGemma,
     .class_name = "GemmaForCausalLM",
     .set_defaults = SetGemma,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias use_bidirectional_attention",
     .defaults = "num_key_value_heads=16 head_dim=256"},
    {.architecture = Architecture::kGemma2,
     .class_name = "Gemma2ForCausalLM",
     .set_defaults = SetGemma2,
     .reads = WEFT_COMMON_READS "rms_norm_eps attention_bias hidden_activation sliding_window "
                                "layer_types query_pre_attn_scalar attn_logit_softcapping "
                                "final_logit_softcapping use_bidirectional_attention",
     .defaults = "num_key_value_heads=4 head_dim=256 sliding_window=4096 "
                 "query_pre_attn_scalar=256 attn_logit_softcapping=50 final_logit_softcapping=30",
     .slides = SlidingBlocks::kAllButEvery,
     .every = 2},
    {.architecture = Architecture::kGemma3,
     .class_name = "Gemma3ForCausalLM",
     .set_defaults = SetGemma3,
     .reads = WEFT_COMMON_READS "rms_norm_eps attention_bias hidden_activation sliding_window "
                                "layer_types sliding_window_pattern query_pre_attn_scalar "
                                "rope_local_base_freq final_logit_softcapping "
                                "use_bidirectional_attention",
     .defaults = "vocab_size=262208 hidden_size=2304 intermediate_size=9216 num_hidden_layers=26 "
                 "num_attention_heads=8 max_position_embeddings=131072 "
                 "num_key_value_heads=4 head_dim=256 sliding_window=4096 rope_theta=1000000 "
                 "query_pre_attn_scalar=256 rope_local_base_freq=10000",
     .slides = SlidingBlocks::kAllButEvery,
     .every = 6,
     .has_rope_by_span = true,
     .wrapper = "gemma3"},
    {.architecture = Architecture::kGlm,
     .class_name = "GlmForCausalLM",
     .set_defaults = SetGlm,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias partial_rotary_factor",
     .defaults = "num_key_value_heads=2 head_dim=128 attention_bias=true rms_norm_eps=1.5625e-07 "
                 "partial_rotary_factor=0.5"},
    {.architecture = Architecture::kGlm4,
     .class_name = "Glm4ForCausalLM",
     .set_defaults = SetGlm,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias partial_rotary_factor",
     .defaults = "num_key_value_heads=2 head_dim=128 attention_bias=true rms_norm_eps=1.5625e-07 "
                 "partial_rotary_factor=0.5"},
    {.architecture = Architecture::kDeepseekV2,
     .needs = "kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim",
     .passed_over = kRouting,
     .reads = WEFT_DEEPSEEK_READS},
    {.architecture = Architecture::kDeepseekV3,
     .needs = "kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim",
     .passed_over = kRouting,
     .reads = WEFT_DEEPSEEK_READS},
    {.architecture = Architecture::kNemotron,
     .class_name = "NemotronForCausalLM",
     .set_defaults = SetNemotron,
     .reads = WEFT_LLAMA_READS "norm_eps attention_bias mlp_bias partial_rotary_factor",
     .defaults = "partial_rotary_factor=0.5 initializer_range=0.0134"},
    // Queries, keys and values are one tensor of its files, head by head.
    {.architecture = Architecture::kGptNeox,
     .class_name = "GPTNeoXForCausalLM",
     .set_defaults = SetGptNeox,
     .reads = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
              "max_position_embeddings initializer_range tie_word_embeddings attention_dropout "
              "hidden_act layer_norm_eps attention_bias use_parallel_residual rotary_emb_base "
              "rotary_pct hidden_dropout",
     .defaults = "rotary_pct=0.25 attention_bias=true use_parallel_residual=true"},
    {.architecture = Architecture::kOlmo2,
     .class_name = "Olmo2ForCausalLM",
     .set_defaults = SetOlmo2,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias",
     .defaults = "rms_norm_eps=1e-05"},
    {.architecture = Architecture::kOlmo3,
     .class_name = "Olmo3ForCausalLM",
     .set_defaults = SetOlmo3,
     .reads = WEFT_LLAMA_READS "rms_norm_eps attention_bias sliding_window layer_types",
     .defaults = "rms_norm_eps=1e-05 rope_theta=500000 sliding_window=4096",
     .slides = SlidingBlocks::kAllButEvery,
     .every = 4,
     .has_rope_by_span = true},
    {.architecture = Architecture::kMinistral,
     .class_name = "MinistralForCausalLM",
     .reads = WEFT_LLAMA_READS "rms_norm_eps sliding_window layer_types",
     .defaults = "num_key_value_heads=8 sliding_window=4096"},
    {.architecture = Architecture::kCohere2,
     .class_name = "Cohere2ForCausalLM",
     .set_defaults = SetCohere2,
     .reads = "vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads "
              "num_key_value_heads max_position_embeddings initializer_range tie_word_embeddings "
              "attention_dropout hidden_act layer_norm_eps attention_bias logit_scale head_dim "
              "sliding_window layer_types sliding_window_pattern",
     .defaults = "layer_norm_eps=1e-05 sliding_window=4096 logit_scale=0.0625",
     .slides = SlidingBlocks::kAllButEvery,
     .every = 4,
     .turns_sliding = true},
};

#undef WEFT_COMMON_READS
#undef WEFT_LLAMA_READS
#undef WEFT_DEEPSEEK_READS

// Architectures of transformers 5.24.0 whose names a slip of the pen would make of those above.
constexpr absl::string_view kOtherArchitectures[] = {
    "blt",       "csm",          "cwm",   "deepseek_ocr2", "esm",    "flava", "gemma3n_text",
    "glmga",     "glpn",         "llava", "ministral3",    "mllama", "olmo",  "pixtral",
    "qwen3_asr", "qwen3_vl_moe", "sam",   "voxtral",       "xglm",   "xlm",
};

std::string DigitsOf(absl::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (absl::ascii_isdigit(static_cast<unsigned char>(c))) digits.push_back(c);
  }
  return digits;
}

}  // namespace

bool HasWord(absl::string_view words, absl::string_view word) {
  for (absl::string_view each : absl::StrSplit(words, ' ', absl::SkipEmpty())) {
    if (each == word) return true;
  }
  return false;
}

Words WordsOf(ModelFamily) {
  static constexpr absl::string_view kWords[] = {"gpt2", "llama"};
  return kWords;
}

const ModelType& TypeOf(Architecture architecture) {
  return *FindModelType(WordOf(architecture));
}

void SetTypeDefaults(const ModelType& type, ModelShape& model) {
  SetArchitecture(type.architecture, model);
  if (type.set_defaults != nullptr) type.set_defaults(model);
}

absl::Span<const ModelType> ModelTypes() {
  return kTypes;
}

const ModelType* FindModelType(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const ModelType& type) { return type.name() == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

const ModelType* MisspelledModelType(absl::string_view name) {
  const std::string plain =
      absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"-", "_"}, {" ", "_"}, {".", ""}});
  std::vector<std::string> types;
  for (const ModelType& type : kTypes) {
    const std::string ours(type.name());
    if (plain == ours || absl::StrReplaceAll(plain, {{"_", ""}}) == ours) return &type;
    types.push_back(ours);
  }
  const bool is_other = std::find(std::begin(kOtherArchitectures), std::end(kOtherArchitectures),
                                  plain) != std::end(kOtherArchitectures);
  const std::optional<std::string> nearest = Nearest(plain, types);
  // A generation or a variant is no slip: llama4, nemotron_h, qwen2.
  if (is_other || !nearest || absl::StartsWith(plain, *nearest) ||
      absl::StartsWith(*nearest, plain) || DigitsOf(plain) != DigitsOf(*nearest)) {
    return nullptr;
  }
  return FindModelType(*nearest);
}

std::string ModelTypesText() {
  std::string text;
  const size_t count = std::size(kTypes);
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == count ? " or " : ", ", kTypes[i].name());
  }
  return text;
}

}  // namespace weft
