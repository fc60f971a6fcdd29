#include "plan/keys/model_types.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr absl::string_view kRouting =
    "aux_loss_alpha ep_size moe_router_dtype n_group norm_topk_prob "
    "num_nextn_predict_layers quantization_config rope_interleave routed_scaling_factor "
    "scoring_func seq_aux topk_group topk_method max_window_layers";

// Jiang et al., arXiv:2401.04088, table 1.
void SetMixtral(ModelShape& model) {
  model.num_experts = 8;
  model.experts_per_token = 2;
}

void SetQwen3(ModelShape& model) {
  model.qk_norms = true;
}

// Nemotron-4, arXiv:2402.16819, 2.1: squared ReLU without a gate, LayerNorm, no other biases.
void SetNemotron(ModelShape& model) {
  model.plain_ffn = true;
  model.layer_norms = true;
  model.norm_eps = 1e-5;
}

constexpr ModelType kTypes[] = {
    {.name = "gpt2", .family = ModelFamily::kGpt2},
    {.name = "llama"},
    {.name = "mistral"},
    {.name = "mixtral", .set_defaults = SetMixtral},
    {.name = "qwen3", .set_defaults = SetQwen3, .passed_over = "max_window_layers"},
    {.name = "qwen3_moe",
     .set_defaults = SetQwen3,
     .needs = "num_local_experts num_experts_per_tok moe_intermediate_size",
     .passed_over = kRouting},
    {.name = "deepseek_v2",
     .needs = "kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim",
     .passed_over = kRouting},
    {.name = "deepseek_v3",
     .needs = "kv_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim",
     .passed_over = kRouting},
    {.name = "nemotron",
     .set_defaults = SetNemotron,
     .activation = "relu2",
     .passed_over = "partial_rotary_factor"},
};

}  // namespace

absl::Span<const ModelType> ModelTypes() {
  return kTypes;
}

const ModelType* FindModelType(absl::string_view name) {
  const auto* found = std::find_if(std::begin(kTypes), std::end(kTypes),
                                   [&](const ModelType& type) { return type.name == name; });
  return found == std::end(kTypes) ? nullptr : found;
}

std::string ModelTypesText() {
  std::string text;
  const size_t count = std::size(kTypes);
  for (size_t i = 0; i < count; ++i) {
    absl::StrAppend(&text, i == 0 ? "" : i + 1 == count ? " or " : ", ", kTypes[i].name);
  }
  return text;
}

}  // namespace weft
