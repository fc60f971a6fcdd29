#include "plan/spec/model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Upper bounds that no real model comes near; they keep every product of ours within int64_t.
constexpr int64_t kMaxIds = (int64_t{1} << 31) - 1;  // token ids are int32
constexpr int64_t kMaxHidden = int64_t{1} << 20;
constexpr int64_t kMaxFfn = int64_t{1} << 22;
constexpr int64_t kMaxBlocks = int64_t{1} << 16;
constexpr int64_t kMaxPositions = int64_t{1} << 30;
constexpr int64_t kMaxExperts = int64_t{1} << 14;
constexpr int64_t kMaxExpertWidth = int64_t{1} << 24;  // of all experts of a block

void CheckCount(absl::string_view key, int64_t value, int64_t most,
                std::vector<SpecIssue>& issues) {
  if (value >= 1 && value <= most) return;
  issues.push_back(
      {absl::StrCat("model.", key), absl::StrCat(value, " is out of range; use 1 to ", most)});
}

// Heads of models that have no key for their size share the residual's columns.
void CheckWholeHeads(const ModelShape& model, const ModelKeys& keys,
                     std::vector<SpecIssue>& issues) {
  if (model.hidden_size % model.num_heads != 0) {
    issues.push_back(
        {absl::StrCat("model.", keys.num_heads),
         absl::StrCat(model.num_heads, " does not divide ", keys.hidden_size, " ",
                      model.hidden_size, "; use ",
                      DivisorsText(model.hidden_size, model.hidden_size, model.num_heads))});
  } else if (model.num_heads * model.head_dim != model.hidden_size) {
    issues.push_back({absl::StrCat("model.", keys.num_heads),
                      absl::StrCat(model.num_heads, " heads of ", model.head_dim, " are not ",
                                   keys.hidden_size, " ", model.hidden_size, "; use heads of ",
                                   model.hidden_size / model.num_heads)});
  }
  if (model.num_kv_heads != model.num_heads) {
    issues.push_back(
        {absl::StrCat("model.", keys.num_heads),
         absl::StrCat(model.num_heads, " differs from ", model.num_kv_heads, " kv heads; ",
                      WordOf(model.architecture), " has as many kv heads as heads")});
  }
}

void CheckRopeScaling(const RopeScaling& scaling, std::vector<SpecIssue>& issues) {
  if (scaling.factor == 1) return;
  if (!std::isfinite(scaling.factor) || scaling.factor < 1) {
    issues.push_back({"model.rope_scaling.factor",
                      absl::StrCat(scaling.factor, " is less than 1; use 1 or more, e.g. 8")});
  }
  const auto wrong = [&](absl::string_view key, double value, absl::string_view cure) {
    issues.push_back({absl::StrCat("model.rope_scaling.", key),
                      absl::StrCat(value, " is out of range; use ", cure)});
  };
  if (scaling.kind == RopeKind::kLinear) return;
  if (scaling.kind == RopeKind::kYarn) {
    if (!(scaling.beta_slow > 0) || !(scaling.beta_slow < scaling.beta_fast) ||
        !std::isfinite(scaling.beta_fast)) {
      wrong("beta_fast", scaling.beta_fast,
            "more than beta_slow, and both positive, e.g. 32 and 1");
    }
    if (!(scaling.attention_factor >= 0) || !std::isfinite(scaling.attention_factor)) {
      wrong("attention_factor", scaling.attention_factor, "a positive number, or leave it out");
    }
  } else if (!std::isfinite(scaling.high_freq_factor) || scaling.low_freq_factor <= 0 ||
             !(scaling.low_freq_factor < scaling.high_freq_factor)) {
    issues.push_back(
        {"model.rope_scaling.low_freq_factor",
         absl::StrCat(scaling.low_freq_factor, " with high_freq_factor ", scaling.high_freq_factor,
                      "; both must be positive and the former smaller, e.g. 1 and 4")});
  }
  CheckCount("rope_scaling.original_max_position_embeddings", scaling.original_max_positions,
             kMaxPositions, issues);
}

void CheckRotation(const ModelShape& model, const ModelKeys& keys, std::vector<SpecIssue>& issues) {
  const auto wrong = [&](absl::string_view key, double value, absl::string_view cure) {
    issues.push_back(
        {absl::StrCat("model.", key), absl::StrCat(value, " is out of range; use ", cure)});
  };
  if (!std::isfinite(model.sliding_rope_theta) || model.sliding_rope_theta < 0) {
    wrong(keys.sliding_rope_theta, model.sliding_rope_theta, "a positive number, e.g. 10000");
  }
  for (const auto& [key, cap] : {std::pair{keys.attention_cap, model.attention_cap},
                                 std::pair{keys.logit_cap, model.logit_cap}}) {
    if (!std::isfinite(cap) || cap < 0) wrong(key, cap, "null or a positive number, e.g. 50");
  }
  if (!(model.query_scalar >= 0) || model.query_scalar > static_cast<double>(kMaxHidden) ||
      model.query_scalar != std::floor(model.query_scalar)) {
    wrong(keys.query_scalar, model.query_scalar, "a whole number, e.g. that of head_dim");
  }
  if (!(model.rotary_share > 0) || model.rotary_share > 1) {
    wrong(keys.rotary_share, model.rotary_share, "more than 0, and 1 at most");
  } else if (model.is_latent()) {
    return;  // its part with positions has a key of its own
  } else if (model.head_dim % 2 == 0 && (model.rotary_dims() < 2 || model.rotary_dims() % 2 != 0)) {
    issues.push_back(
        {absl::StrCat("model.", keys.rotary_share),
         absl::StrCat(model.rotary_share, " of a head's ", model.head_dim, " elements are ",
                      model.rotary_dims(), ", but rotary positions turn pairs; use e.g. 0.5")});
  }
}

void CheckHeads(const ModelShape& model, const ModelKeys& keys, std::vector<SpecIssue>& issues) {
  if (model.num_heads % model.num_kv_heads != 0) {
    issues.push_back(
        {absl::StrCat("model.", keys.num_kv_heads),
         absl::StrCat(model.num_kv_heads, " does not divide ", keys.num_heads, " ", model.num_heads,
                      "; use ",
                      DivisorsText(model.num_heads, model.num_heads, model.num_kv_heads))});
  }
  if (model.learned_positions) return;
  if (model.head_dim % 2 != 0) {
    issues.push_back({absl::StrCat("model.", keys.head_dim),
                      absl::StrCat(model.head_dim,
                                   " is odd, but rotary positions turn pairs; use an even one")});
  }
  if (!std::isfinite(model.rope_theta) || model.rope_theta <= 0) {
    issues.push_back({"model.rope_theta",
                      absl::StrCat(model.rope_theta, " is not a positive number; use e.g. 10000")});
  }
  CheckRopeScaling(model.rope_scaling, issues);
  CheckRotation(model, keys, issues);
}

// REQUIRES: the other counts are sound.
void CheckLatent(const ModelShape& model, std::vector<SpecIssue>& issues) {
  const LatentAttention& latent = model.latent;
  if (!model.is_latent() && latent.kv_rank == 0) return;
  CheckCount("kv_lora_rank", latent.kv_rank, kMaxHidden, issues);
  if (latent.query_rank != 0) CheckCount("q_lora_rank", latent.query_rank, kMaxHidden, issues);
  CheckCount("qk_nope_head_dim", latent.nope_dim, kMaxHidden, issues);
  CheckCount("qk_rope_head_dim", latent.rope_dim, kMaxHidden, issues);
  CheckCount("v_head_dim", latent.value_dim, kMaxHidden, issues);
  const auto wrong = [&](absl::string_view key, std::string message) {
    issues.push_back({absl::StrCat("model.", key), std::move(message)});
  };
  if (model.num_kv_heads != model.num_heads) {
    wrong("num_key_value_heads", absl::StrCat(model.num_kv_heads, " with kv_lora_rank, where each ",
                                              "head has a key of its own; use ", model.num_heads));
  }
  if (model.head_dim != latent.nope_dim + latent.rope_dim) {
    wrong("head_dim", absl::StrCat(model.head_dim, " is not qk_nope_head_dim + qk_rope_head_dim; ",
                                   "use ", latent.nope_dim + latent.rope_dim, ", or leave it out"));
  }
  if (model.qk_norms) {
    wrong("use_qk_norm", "true with kv_lora_rank, which has norms of its own; use false");
  }
  if (model.attention_bias) {
    wrong("attention_bias", "true with kv_lora_rank, whose layers have none; use false");
  }
}

void CheckMultipliers(const ModelShape& model, const ModelKeys& keys,
                      std::vector<SpecIssue>& issues) {
  const auto check = [&](absl::string_view key, double value, bool may_be_zero) {
    if (std::isfinite(value) && (value > 0 || (may_be_zero && value == 0))) return;
    issues.push_back({absl::StrCat("model.", key),
                      absl::StrCat(value, " is not a positive number; use e.g. 1")});
  };
  check(keys.embedding_multiplier, model.embedding_multiplier, false);
  check(keys.residual_multiplier, model.residual_multiplier, false);
  check(keys.attention_multiplier, model.attention_multiplier, true);
  check(keys.logits_scaling, model.logits_scaling, false);
  check(keys.logit_scale, model.logit_scale, false);
}

// Refuses mechanisms that a parallel residual is not computed with.
void CheckParallel(const ModelShape& model, const ModelKeys& keys, std::vector<SpecIssue>& issues) {
  if (!model.parallel_residual) return;
  const std::pair<bool, absl::string_view> others[] = {
      {model.num_experts > 0, keys.num_experts},
      {model.is_latent(), keys.kv_rank},
      {model.residual_multiplier != 1, keys.residual_multiplier},
      {model.post_norms, "norms behind the branches"}};
  for (const auto& [is_there, key] : others) {
    if (!is_there) continue;
    issues.push_back({absl::StrCat("model.", keys.parallel_residual),
                      absl::StrCat("true with ", key, ", which is not supported yet; use false")});
  }
}

// REQUIRES: num_blocks is sound.
void CheckSpans(const ModelShape& model, const ModelKeys& keys, std::vector<SpecIssue>& issues) {
  const auto wrong = [&](absl::string_view key, std::string message) {
    issues.push_back({absl::StrCat("model.", key), std::move(message)});
  };
  if (model.window < 0 || model.window > kMaxPositions) {
    wrong(keys.window,
          absl::StrCat(model.window, " is out of range; use null, or 1 to ", kMaxPositions));
  }
  const auto count = [&](absl::string_view key, size_t found) {
    if (found == 0 || static_cast<int64_t>(found) == model.num_blocks) return;
    wrong(key, absl::StrCat("says something of ", found, " blocks; the model has ",
                            model.num_blocks, ": use a list of so many, or leave it out"));
  };
  count(keys.spans, model.spans.size());
  count(keys.turns, model.turns.size());
  const bool slides = std::find(model.spans.begin(), model.spans.end(), AttentionSpan::kSliding) !=
                      model.spans.end();
  if (slides && model.window == 0) {
    wrong(keys.spans, absl::StrCat("has ", WordOf(AttentionSpan::kSliding), " without ",
                                   keys.window, "; say how many keys a token sees"));
  }
}

// REQUIRES: num_experts is sound and at least 1.
void CheckSharedExperts(const ModelShape& model, std::vector<SpecIssue>& issues) {
  const auto wrong = [&](absl::string_view key, std::string message) {
    issues.push_back({absl::StrCat("model.", key), std::move(message)});
  };
  if (model.num_dense_blocks < 0 || model.num_dense_blocks >= model.num_blocks) {
    wrong("first_k_dense_replace",
          absl::StrCat(model.num_dense_blocks, " is out of range; use 0 to ", model.num_blocks - 1,
                       ", so that a block with experts is left"));
  }
  if (model.shared_ffn_size != 0) {
    CheckCount("shared_expert_intermediate_size", model.shared_ffn_size, kMaxFfn, issues);
  } else if (model.shared_expert_gate) {
    wrong("shared_expert_gate", "true without a shared expert; use false");
  }
  if (!(model.expert_imbalance >= 1) ||
      model.expert_imbalance > static_cast<double>(model.num_experts)) {
    wrong("expert_imbalance",
          absl::StrCat(model.expert_imbalance, " is out of range; use 1 to ", model.num_experts));
  }
}

// REQUIRES: the other counts are sound.
void CheckExperts(const ModelShape& model, std::vector<SpecIssue>& issues) {
  constexpr absl::string_view kExperts = "model.num_local_experts";
  if (model.num_experts == 0) {
    if (model.num_dense_blocks == 0 && model.shared_ffn_size == 0) return;
    const bool dense = model.num_dense_blocks != 0;
    issues.push_back({absl::StrCat("model.", dense ? "first_k_dense_replace"
                                                   : "shared_expert_intermediate_size"),
                      absl::StrCat(dense ? model.num_dense_blocks : model.shared_ffn_size,
                                   " with a model without experts; use 0, or num_local_experts")});
    return;
  }
  if (model.architecture == Architecture::kGpt2) {
    issues.push_back(
        {std::string{kExperts}, absl::StrCat(model.num_experts,
                                             " with gpt2, whose feed-forward is dense; "
                                             "use 0, or a llama with experts")});
    return;
  }
  const size_t before = issues.size();
  CheckCount("num_local_experts", model.num_experts, kMaxExperts, issues);
  CheckCount("moe_intermediate_size", model.expert_ffn_size, kMaxFfn, issues);
  if (issues.size() > before) return;
  CheckCount("num_experts_per_tok", model.experts_per_token, model.num_experts, issues);
  if (model.num_experts * model.expert_ffn_size > kMaxExpertWidth) {
    issues.push_back({std::string{kExperts},
                      absl::StrCat(model.num_experts, " experts of ", model.expert_ffn_size,
                                   " are too wide; use at most ", kMaxExpertWidth, " in all")});
  }
  CheckSharedExperts(model, issues);
}

}  // namespace

int64_t TensorSpec::elements() const {
  int64_t product = 1;
  for (const int64_t dim : dims) product *= dim;
  return product;
}

ModelKeys KeysOf(Architecture architecture) {
  if (architecture == Architecture::kGpt2) {
    return {.vocab_size = "vocab_size",
            .hidden_size = "n_embd",
            .num_blocks = "n_layer",
            .num_heads = "n_head",
            .num_kv_heads = "",
            .head_dim = "",
            .ffn_size = "n_inner",
            .max_positions = "n_positions",
            .norm_eps = "layer_norm_epsilon"};
  }
  using enum Architecture;
  const bool is_neox = architecture == kGptNeox;
  const absl::string_view norm_eps = architecture == kStarcoder2           ? "norm_epsilon"
                                     : architecture == kNemotron           ? "norm_eps"
                                     : is_neox || architecture == kCohere2 ? "layer_norm_eps"
                                                                           : "rms_norm_eps";
  return {.vocab_size = "vocab_size",
          .hidden_size = "hidden_size",
          .num_blocks = "num_hidden_layers",
          .num_heads = "num_attention_heads",
          .num_kv_heads = "num_key_value_heads",
          .head_dim = "head_dim",
          .ffn_size = "intermediate_size",
          .max_positions = "max_position_embeddings",
          .norm_eps = norm_eps,
          .rope_theta = is_neox ? "rotary_emb_base" : "rope_theta",
          .attention_bias = "attention_bias",
          .rope_scaling = "rope_scaling",
          .num_experts = "num_local_experts",
          .experts_per_token = "num_experts_per_tok",
          .expert_ffn_size = "moe_intermediate_size",
          .num_dense_blocks = "first_k_dense_replace",
          .shared_ffn_size = "shared_expert_intermediate_size",
          .shared_expert_gate = "shared_expert_gate",
          .expert_imbalance = "expert_imbalance",
          .query_rank = "q_lora_rank",
          .kv_rank = "kv_lora_rank",
          .nope_dim = "qk_nope_head_dim",
          .rope_dim = "qk_rope_head_dim",
          .value_dim = "v_head_dim",
          .qk_norms = "use_qk_norm",
          .layer_norms = "use_layer_norm",
          .plain_ffn = "use_plain_mlp",
          .embedding_multiplier = "embedding_multiplier",
          .residual_multiplier = "residual_multiplier",
          .attention_multiplier = "attention_multiplier",
          .logits_scaling = "logits_scaling",
          .logit_scale = "logit_scale",
          .window = "sliding_window",
          .spans = "layer_types",
          .turns = "no_rope_layers",
          .sliding_rope_theta = "rope_local_base_freq",
          .parallel_residual = "use_parallel_residual",
          .rotary_share = is_neox ? "rotary_pct" : "partial_rotary_factor",
          .query_scalar = "query_pre_attn_scalar",
          .attention_cap = "attn_logit_softcapping",
          .logit_cap = "final_logit_softcapping"};
}

std::vector<SpecIssue> ModelIssues(const ModelShape& model) {
  std::vector<SpecIssue> issues;
  const ModelKeys keys = KeysOf(model.architecture);
  const bool has_head_keys = !keys.head_dim.empty();
  CheckCount(keys.vocab_size, model.vocab_size, kMaxIds, issues);
  CheckCount(keys.hidden_size, model.hidden_size, kMaxHidden, issues);
  CheckCount(keys.num_blocks, model.num_blocks, kMaxBlocks, issues);
  CheckCount(keys.num_heads, model.num_heads, kMaxHidden, issues);
  if (has_head_keys) {
    CheckCount(keys.num_kv_heads, model.num_kv_heads, kMaxHidden, issues);
    CheckCount(keys.head_dim, model.head_dim, kMaxHidden, issues);
  }
  CheckCount(keys.ffn_size, model.ffn_size, kMaxFfn, issues);
  CheckCount(keys.max_positions, model.max_positions, kMaxPositions, issues);
  // The counts are sound: they may be divided by and multiplied.
  if (issues.empty() && !has_head_keys) CheckWholeHeads(model, keys, issues);
  if (issues.empty() && has_head_keys) CheckHeads(model, keys, issues);
  if (model.activation != Activation::kGelu &&
      model.is_gated() != (model.activation == Activation::kSilu)) {
    issues.push_back(
        {"model.hidden_act",
         absl::StrCat(WordOf(model.activation), model.is_gated() ? " with" : " without",
                      " a gate is not supported yet; use silu or gelu_new with a gate, or gelu, "
                      "gelu_new or relu2 without")});
  }
  if (issues.empty()) CheckExperts(model, issues);
  if (issues.empty()) CheckLatent(model, issues);
  if (issues.empty() && model.num_heads * model.head_dim > kMaxFfn) {
    issues.push_back({absl::StrCat("model.", keys.num_heads),
                      absl::StrCat(model.num_heads, " heads of ", model.head_dim,
                                   " are too wide; use at most ", kMaxFfn, " in all")});
  }
  if (!std::isfinite(model.norm_eps) || model.norm_eps <= 0) {
    issues.push_back({absl::StrCat("model.", keys.norm_eps),
                      absl::StrCat(model.norm_eps, " is not a positive number; use e.g. 1e-05")});
  }
  if (!std::isfinite(model.initializer_range) || model.initializer_range <= 0) {
    issues.push_back(
        {"model.initializer_range",
         absl::StrCat(model.initializer_range, " is not a positive number; use e.g. 0.02")});
  }
  CheckMultipliers(model, keys, issues);
  CheckParallel(model, keys, issues);
  CheckSpans(model, keys, issues);
  return issues;
}

absl::Status CheckModel(const ModelShape& model) {
  return FirstIssue(ModelIssues(model));
}

int64_t ModelShape::rotary_dims() const {
  const int64_t dims = is_latent() ? latent.rope_dim : head_dim;
  return static_cast<int64_t>(static_cast<double>(dims) * rotary_share);
}

std::vector<Rotation> ModelShape::rotations() const {
  if (learned_positions) return {};
  std::vector<Rotation> ways = {{rope_theta, rope_scaling, rotary_dims()}};
  if (sliding_rope_theta > 0 && window > 0) ways.push_back({sliding_rope_theta, {}, rotary_dims()});
  return ways;
}

double ModelShape::attention_scale() const {
  return query_scalar > 0 ? 1 / std::sqrt(query_scalar) : attention_multiplier;
}

bool ModelShape::slides_over(int64_t positions) const {
  if (window == 0 || window >= positions) return false;
  return spans.empty() ||
         std::find(spans.begin(), spans.end(), AttentionSpan::kSliding) != spans.end();
}

ModelShape OfDenseBlocks(const ModelShape& model) {
  ModelShape dense = model;
  dense.num_experts = dense.experts_per_token = dense.expert_ffn_size = 0;
  dense.num_dense_blocks = dense.shared_ffn_size = 0;
  dense.shared_expert_gate = false;
  dense.expert_imbalance = 1;
  return dense;
}

Words WordsOf(Architecture) {
  static constexpr absl::string_view kWords[] = {
      "gpt2",     "llama",       "mistral",     "mixtral",    "qwen2",
      "qwen3",    "qwen3_moe",   "phi3",        "starcoder2", "granite",
      "seed_oss", "deepseek_v3", "deepseek_v2", "nemotron",   "smollm3",
      "gemma",    "gemma2",      "gemma3_text", "glm",        "glm4",
      "gpt_neox", "olmo2",       "olmo3",       "ministral",  "cohere2"};
  return kWords;
}

Words WordsOf(RopeKind) {
  static constexpr absl::string_view kWords[] = {"llama3", "linear", "yarn"};
  return kWords;
}

Words WordsOf(AttentionSpan) {
  static constexpr absl::string_view kWords[] = {"full_attention", "sliding_attention"};
  return kWords;
}

Words WordsOf(Activation) {
  static constexpr absl::string_view kWords[] = {"silu", "gelu_new", "relu2", "gelu"};
  return kWords;
}

void SettleSpans(ModelShape& model) {
  const auto of_spans = [&](AttentionSpan span) {
    return std::count(model.spans.begin(), model.spans.end(), span) == std::ssize(model.spans);
  };
  if (!model.spans.empty() && of_spans(AttentionSpan::kFull)) model.window = 0;
  if (of_spans(AttentionSpan::kFull)) model.spans.clear();
  if (model.window > 0 && of_spans(AttentionSpan::kSliding)) model.spans.clear();
  if (std::find(model.turns.begin(), model.turns.end(), false) == model.turns.end()) {
    model.turns.clear();
  }
}

}  // namespace weft
