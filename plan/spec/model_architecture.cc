// Architectures have mechanisms; by these a shape may be another one's model. plan/spec/model.h
// declares all that is here.
#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <tuple>

#include "plan/spec/model.h"

namespace weft {

void SetArchitecture(Architecture architecture, ModelShape& model) {
  const auto is = [&](std::initializer_list<Architecture> those) {
    return std::find(those.begin(), those.end(), architecture) != those.end();
  };
  using enum Architecture;
  const bool was_asked_for = model.attention_bias && !AreBiasesAlwaysThere(model.architecture);
  model.architecture = architecture;
  model.attention_bias = AreBiasesAlwaysThere(architecture) || was_asked_for;
  model.bare_output = is({kQwen2, kSeedOss, kGlm, kGlm4});
  model.wide_qk_norms = is({kOlmo2, kOlmo3});
  model.qk_norms = is({kQwen3, kQwen3Moe, kGemma3}) || model.wide_qk_norms;
  model.plain_ffn = is({kGpt2, kStarcoder2, kNemotron, kGptNeox});
  model.bare_norms = model.shares_norm = is({kCohere2});
  model.layer_norms = model.plain_ffn || model.bare_norms;
  model.activation = is({kGpt2, kStarcoder2, kGemma, kGemma2, kGemma3}) ? Activation::kGelu
                     : is({kNemotron})                                  ? Activation::kSquaredRelu
                     : is({kGptNeox})                                   ? Activation::kErfGelu
                                                                        : Activation::kSilu;
  model.interleaved_rotation = is({kGlm, kGlm4, kCohere2});
  model.pre_norms = !is({kOlmo2, kOlmo3});
  model.post_norms = is({kGemma2, kGemma3, kGlm4}) || !model.pre_norms;
  model.scaled_embeddings = is({kGemma, kGemma2, kGemma3});
  model.norm_offset = is({kGemma, kGemma2, kGemma3, kNemotron}) ? 1 : 0;
  model.ffn_bias = is({kGpt2, kStarcoder2, kGptNeox});
  model.learned_positions = model.scaled_residual_init = is({kGpt2});
  if (model.shares_norm) model.parallel_residual = true;
}

bool AreBiasesAlwaysThere(Architecture architecture) {
  return architecture == Architecture::kGpt2 || architecture == Architecture::kQwen2 ||
         architecture == Architecture::kStarcoder2;
}

bool ComputeAlike(const ModelShape& a, const ModelShape& b) {
  const auto mechanisms = [](const ModelShape& model) {
    return std::make_tuple(model.num_experts > 0, model.is_latent(), model.qk_norms,
                           model.layer_norms, model.plain_ffn, model.activation, model.bare_output,
                           model.ffn_bias, model.learned_positions);
  };
  const auto newer = [](const ModelShape& model) {
    return std::make_tuple(model.pre_norms, model.post_norms, model.norm_offset,
                           model.scaled_embeddings, model.interleaved_rotation, model.wide_qk_norms,
                           model.bare_norms, model.shares_norm, model.parallel_residual);
  };
  const auto factors = [](const ModelShape& model) {
    return std::make_tuple(model.embedding_multiplier, model.residual_multiplier,
                           model.attention_multiplier, model.logits_scaling, model.logit_scale);
  };
  return mechanisms(a) == mechanisms(b) && newer(a) == newer(b) && factors(a) == factors(b);
}

namespace {

// A Sliding says which blocks of an architecture's models may slide.
enum class Sliding { kNone, kAllOrNone, kAny };
Sliding SlidingOf(Architecture architecture) {
  switch (architecture) {
    case Architecture::kQwen2:
    case Architecture::kQwen3:
    case Architecture::kSmollm3:
    case Architecture::kGemma2:
    case Architecture::kGemma3:
    case Architecture::kOlmo3:
    case Architecture::kMinistral:
    case Architecture::kCohere2:
      return Sliding::kAny;
    case Architecture::kMistral:
    case Architecture::kMixtral:
    case Architecture::kQwen3Moe:
    case Architecture::kPhi3:
    case Architecture::kStarcoder2:
      return Sliding::kAllOrNone;
    default:
      return Sliding::kNone;
  }
}

// Whether an architecture's models may turn a part of each head only.
bool TurnsParts(Architecture architecture) {
  using enum Architecture;
  return architecture == kGlm || architecture == kGlm4 || architecture == kPhi3 ||
         architecture == kNemotron || architecture == kGptNeox;
}

bool HasMultipliers(const ModelShape& model) {
  return model.embedding_multiplier != 1 || model.residual_multiplier != 1 ||
         model.attention_multiplier != 0 || model.logits_scaling != 1;
}

// Whether heads are as many and as wide as an architecture without keys for them has.
bool HasHeadsOf(Architecture architecture, const ModelShape& model) {
  using enum Architecture;
  const bool is_neox = architecture == kGptNeox;
  if (is_neox && model.num_kv_heads != model.num_heads) return false;
  return !(is_neox || architecture == kCohere2) ||
         model.num_heads * model.head_dim == model.hidden_size;
}

// Whether sliding blocks turn queries and keys, and no others do.
bool TurnsWhereItSlides(const ModelShape& model) {
  for (int64_t block = 0; block < model.num_blocks; ++block) {
    if (model.turns_in(block) != (model.window_of(block) > 0)) return false;
  }
  return true;
}

// Says whether all that a model computes is what this architecture's models do.
bool IsOf(Architecture architecture, const ModelShape& model) {
  using enum Architecture;
  const bool has_latents = architecture == kDeepseekV2 || architecture == kDeepseekV3;
  const bool has_experts = architecture == kMixtral || architecture == kQwen3Moe;
  if (model.is_latent() != has_latents) return false;
  if (!has_latents && (model.num_experts > 0) != has_experts) return false;
  if (HasMultipliers(model) && architecture != kGranite) return false;
  if (AreBiasesAlwaysThere(architecture) && !model.attention_bias) return false;
  // Their classes have no place for biases.
  if (model.attention_bias &&
      (architecture == kPhi3 || architecture == kMistral || architecture == kMinistral)) {
    return false;
  }
  if (!HasHeadsOf(architecture, model)) return false;
  const Sliding sliding = SlidingOf(architecture);
  if (model.window > 0 && sliding == Sliding::kNone) return false;
  if (!model.spans.empty() && sliding != Sliding::kAny) return false;
  const bool is_cohere = architecture == kCohere2;
  if (is_cohere ? !TurnsWhereItSlides(model) : !model.turns.empty() && architecture != kSmollm3) {
    return false;
  }
  if (model.parallel_residual && !is_cohere && architecture != kGptNeox) return false;
  if (is_cohere && !model.parallel_residual) return false;
  if (model.logit_scale != 1 && !is_cohere) return false;
  if (model.rotary_share != 1 && !TurnsParts(architecture)) return false;
  const bool is_newer_gemma = architecture == kGemma2 || architecture == kGemma3;
  const bool has_two_bases = architecture == kGemma3 || architecture == kOlmo3;
  if ((model.sliding_rope_theta > 0) != has_two_bases) return false;
  if ((model.query_scalar > 0) != is_newer_gemma) return false;
  if (model.attention_cap > 0 && architecture != kGemma2) return false;
  if (model.logit_cap > 0 && !is_newer_gemma) return false;
  ModelShape typical = model;
  SetArchitecture(architecture, typical);
  return ComputeAlike(model, typical);
}

}  // namespace

Architecture ArchitectureOf(const ModelShape& model) {
  if (IsOf(model.architecture, model)) return model.architecture;
  for (size_t i = 0; i < WordsOf(Architecture()).size(); ++i) {
    const auto other = static_cast<Architecture>(i);
    if (IsOf(other, model)) return other;
  }
  return model.architecture;
}

bool IsOfItsArchitecture(const ModelShape& model) {
  return IsOf(ArchitectureOf(model), model);
}

absl::string_view ModelTypeOf(const ModelShape& model) {
  return WordOf(ArchitectureOf(model));
}

}  // namespace weft
