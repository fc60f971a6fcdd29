#include "plan/spec/model.h"

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

class Inventory {
 public:
  explicit Inventory(const ModelShape& model) : model_(model) {}

  // A linear weight [out, in] with its bias, if the family has biases.
  // split_dim 0 cuts the outputs (bias with them), 1 the inputs (bias whole on each tp rank).
  void AddLinear(const std::string& name, int64_t out, int64_t in, int split_dim, int64_t unit,
                 double std) {
    Add(absl::StrCat(name, ".weight"), {out, in}, split_dim, unit, InitialValue::kNormal, std);
    const bool in_attention = absl::StrContains(name, ".attn.");
    if (model_.family != ModelFamily::kGpt2 && !(model_.attention_bias && in_attention)) return;
    Add(absl::StrCat(name, ".bias"), {out}, split_dim == 0 ? 0 : -1, split_dim == 0 ? unit : 1,
        InitialValue::kZero, 0);
  }

  void AddNorm(const std::string& name) {
    Add(absl::StrCat(name, ".weight"), {model_.hidden_size}, -1, 1, InitialValue::kOne, 0);
    tensors_.back().is_norm = true;
    if (!model_.has_layer_norms()) return;
    Add(absl::StrCat(name, ".bias"), {model_.hidden_size}, -1, 1, InitialValue::kZero, 0);
    tensors_.back().is_norm = true;
  }

  // An RMSNorm inside attention, of whole tokens on each rank.
  void AddInnerNorm(const std::string& name, int64_t width) {
    Add(absl::StrCat(name, ".weight"), {width}, -1, 1, InitialValue::kOne, 0);
  }

  // Rows are tokens or positions.
  void AddTable(std::string name, int64_t rows, int split_dim) {
    Add(std::move(name), {rows, model_.hidden_size}, split_dim, 1, InitialValue::kNormal,
        model_.initializer_range);
  }

  void Enter(ModelPart part, int64_t block) {
    part_ = part;
    block_ = block;
  }

  std::vector<TensorSpec> Take() { return std::move(tensors_); }

 private:
  void Add(std::string name, std::vector<int64_t> dims, int split_dim, int64_t unit,
           InitialValue initial, double std) {
    TensorSpec tensor;
    tensor.name = std::move(name);
    tensor.dims = std::move(dims);
    tensor.split_dim = split_dim;
    tensor.split_unit = unit;
    tensor.part = part_;
    tensor.block = block_;
    tensor.initial = initial;
    tensor.initial_std = std;
    tensors_.push_back(std::move(tensor));
  }

  const ModelShape& model_;
  ModelPart part_ = ModelPart::kEmbedding;
  int64_t block_ = -1;
  std::vector<TensorSpec> tensors_;
};

// The tensors of attention that make its queries, keys and values.
void AddQueriesAndKeys(const ModelShape& model, const std::string& prefix, Inventory& inventory) {
  const double std = model.initializer_range;
  const int64_t width = model.hidden_size;
  const int64_t head_dim = model.head_dim;
  const int64_t q_width = model.num_heads * head_dim;
  if (!model.is_latent()) {
    const int64_t kv_width = model.num_kv_heads * head_dim;
    inventory.AddLinear(prefix + "attn.q", q_width, width, 0, head_dim, std);
    inventory.AddLinear(prefix + "attn.k", kv_width, width, 0, head_dim, std);
    inventory.AddLinear(prefix + "attn.v", kv_width, width, 0, head_dim, std);
    if (!model.qk_norms) return;
    inventory.AddInnerNorm(prefix + "attn.q_norm", head_dim);
    inventory.AddInnerNorm(prefix + "attn.k_norm", head_dim);
    return;
  }
  const LatentAttention& latent = model.latent;
  if (latent.query_rank > 0) {
    inventory.AddLinear(prefix + "attn.q_down", latent.query_rank, width, -1, 1, std);
    inventory.AddInnerNorm(prefix + "attn.q_norm", latent.query_rank);
    inventory.AddLinear(prefix + "attn.q_up", q_width, latent.query_rank, 0, head_dim, std);
  } else {
    inventory.AddLinear(prefix + "attn.q", q_width, width, 0, head_dim, std);
  }
  const int64_t up_dim = latent.nope_dim + latent.value_dim;
  inventory.AddLinear(prefix + "attn.kv_down", latent.kv_rank + latent.rope_dim, width, -1, 1, std);
  inventory.AddInnerNorm(prefix + "attn.kv_norm", latent.kv_rank);
  inventory.AddLinear(prefix + "attn.kv_up", model.num_heads * up_dim, latent.kv_rank, 0, up_dim,
                      std);
}

void AddBlock(const ModelShape& model, int64_t block, Inventory& inventory) {
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  const double std = model.initializer_range;
  // Radford et al., GPT-2, 2.3: residual projections start at 1/sqrt(N) for N residual layers.
  const double residual_std =
      gpt2 ? std / std::sqrt(2.0 * static_cast<double>(model.num_blocks)) : std;
  const int64_t width = model.hidden_size;
  const std::string prefix = absl::StrCat("blocks.", block, ".");
  inventory.Enter(ModelPart::kBlock, block);
  inventory.AddNorm(prefix + "norm1");
  AddQueriesAndKeys(model, prefix, inventory);
  inventory.AddLinear(prefix + "attn.o", width, model.num_heads * model.value_dim(), 1,
                      model.value_dim(), residual_std);
  inventory.AddNorm(prefix + "norm2");
  const auto add_feed_forward = [&](const std::string& name, int64_t ffn_size) {
    if (model.is_gated()) inventory.AddLinear(name + ".gate", ffn_size, width, 0, 1, std);
    inventory.AddLinear(name + ".up", ffn_size, width, 0, 1, std);
    inventory.AddLinear(name + ".down", width, ffn_size, 1, 1, residual_std);
  };
  if (!model.has_experts(block)) return add_feed_forward(prefix + "mlp", model.ffn_size);
  inventory.AddLinear(prefix + "mlp.router", model.num_experts, width, -1, 1, std);
  for (int64_t expert = 0; expert < model.num_experts; ++expert) {
    add_feed_forward(absl::StrCat(prefix, "mlp.experts.", expert), model.expert_ffn_size);
  }
  if (model.shared_ffn_size == 0) return;
  add_feed_forward(prefix + "mlp.shared", model.shared_ffn_size);
  if (model.shared_expert_gate) {
    inventory.AddLinear(prefix + "mlp.shared_gate", 1, width, -1, 1, std);
  }
}

void CheckCount(absl::string_view key, int64_t value, int64_t most,
                std::vector<SpecIssue>& issues) {
  if (value >= 1 && value <= most) return;
  issues.push_back(
      {absl::StrCat("model.", key), absl::StrCat(value, " is out of range; use 1 to ", most)});
}

void CheckGpt2(const ModelShape& model, const ModelKeys& keys, std::vector<SpecIssue>& issues) {
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
    issues.push_back({absl::StrCat("model.", keys.num_heads),
                      absl::StrCat(model.num_heads, " differs from ", model.num_kv_heads,
                                   " kv heads; gpt2 has as many kv heads as heads")});
  }
}

void CheckRopeScaling(const RopeScaling& scaling, std::vector<SpecIssue>& issues) {
  if (scaling.factor == 1) return;
  if (!std::isfinite(scaling.factor) || scaling.factor < 1) {
    issues.push_back({"model.rope_scaling.factor",
                      absl::StrCat(scaling.factor, " is less than 1; use 1 or more, e.g. 8")});
  }
  if (!std::isfinite(scaling.high_freq_factor) || scaling.low_freq_factor <= 0 ||
      !(scaling.low_freq_factor < scaling.high_freq_factor)) {
    issues.push_back(
        {"model.rope_scaling.low_freq_factor",
         absl::StrCat(scaling.low_freq_factor, " with high_freq_factor ", scaling.high_freq_factor,
                      "; both must be positive and the former smaller, e.g. 1 and 4")});
  }
  CheckCount("rope_scaling.original_max_position_embeddings", scaling.original_max_positions,
             kMaxPositions, issues);
}

void CheckLlama(const ModelShape& model, const ModelKeys& keys, std::vector<SpecIssue>& issues) {
  if (model.num_heads % model.num_kv_heads != 0) {
    issues.push_back(
        {absl::StrCat("model.", keys.num_kv_heads),
         absl::StrCat(model.num_kv_heads, " does not divide ", keys.num_heads, " ", model.num_heads,
                      "; use ",
                      DivisorsText(model.num_heads, model.num_heads, model.num_kv_heads))});
  }
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
}

// Latent attention is a llama's alone. REQUIRES: the other counts are sound.
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
  if (model.family == ModelFamily::kGpt2) {
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

ModelKeys KeysOf(ModelFamily family) {
  if (family == ModelFamily::kGpt2) {
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
  return {.vocab_size = "vocab_size",
          .hidden_size = "hidden_size",
          .num_blocks = "num_hidden_layers",
          .num_heads = "num_attention_heads",
          .num_kv_heads = "num_key_value_heads",
          .head_dim = "head_dim",
          .ffn_size = "intermediate_size",
          .max_positions = "max_position_embeddings",
          .norm_eps = "rms_norm_eps",
          .rope_theta = "rope_theta",
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
          .plain_ffn = "use_plain_mlp"};
}

std::vector<SpecIssue> ModelIssues(const ModelShape& model) {
  std::vector<SpecIssue> issues;
  const ModelKeys keys = KeysOf(model.family);
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  CheckCount(keys.vocab_size, model.vocab_size, kMaxIds, issues);
  CheckCount(keys.hidden_size, model.hidden_size, kMaxHidden, issues);
  CheckCount(keys.num_blocks, model.num_blocks, kMaxBlocks, issues);
  CheckCount(keys.num_heads, model.num_heads, kMaxHidden, issues);
  if (!gpt2) {
    CheckCount(keys.num_kv_heads, model.num_kv_heads, kMaxHidden, issues);
    CheckCount(keys.head_dim, model.head_dim, kMaxHidden, issues);
  }
  CheckCount(keys.ffn_size, model.ffn_size, kMaxFfn, issues);
  CheckCount(keys.max_positions, model.max_positions, kMaxPositions, issues);
  // The counts are sound: they may be divided by and multiplied.
  if (issues.empty() && gpt2) {
    CheckGpt2(model, keys, issues);
  } else if (issues.empty()) {
    CheckLlama(model, keys, issues);
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
  return issues;
}

absl::Status CheckModel(const ModelShape& model) {
  return FirstIssue(ModelIssues(model));
}

std::vector<TensorSpec> Tensors(const ModelShape& model) {
  Inventory inventory(model);
  inventory.AddTable(std::string{kTokenEmbeddingName}, model.vocab_size, /*split_dim=*/0);
  if (model.family == ModelFamily::kGpt2) {
    inventory.AddTable("embed.positions.weight", model.max_positions, /*split_dim=*/-1);
  }
  for (int64_t block = 0; block < model.num_blocks; ++block) AddBlock(model, block, inventory);
  inventory.Enter(ModelPart::kHead, -1);
  inventory.AddNorm("final_norm");
  if (!model.tied_embeddings) inventory.AddTable("head.weight", model.vocab_size, /*split_dim=*/0);
  return inventory.Take();
}

int64_t ParameterCount(const ModelShape& model) {
  // Blocks of a kind are alike: one is listed, however many there are.
  const auto count = [](ModelShape one, int64_t blocks, int64_t ends) {
    one.num_blocks = 1;
    one.num_dense_blocks = 0;
    int64_t sum = 0;
    for (const TensorSpec& tensor : Tensors(one)) {
      sum += (tensor.part == ModelPart::kBlock ? blocks : ends) * tensor.elements();
    }
    return sum;
  };
  const int64_t own = count(model, model.num_blocks - model.num_dense_blocks, 1);
  if (model.num_dense_blocks == 0) return own;
  return own + count(OfDenseBlocks(model), model.num_dense_blocks, 0);
}

int64_t ActiveParameterCount(const ModelShape& model) {
  const int64_t matrices = model.is_gated() ? 3 : 2;
  const int64_t expert = matrices * model.hidden_size * model.expert_ffn_size;
  return ParameterCount(model) - (model.num_blocks - model.num_dense_blocks) *
                                     (model.num_experts - model.experts_per_token) * expert;
}

ModelShape OfDenseBlocks(const ModelShape& model) {
  ModelShape dense = model;
  dense.num_experts = dense.experts_per_token = dense.expert_ffn_size = 0;
  dense.num_dense_blocks = dense.shared_ffn_size = 0;
  dense.shared_expert_gate = false;
  dense.expert_imbalance = 1;
  return dense;
}

double BlockForwardFlopsPerToken(const ModelShape& model, int64_t seq_len) {
  const auto width = static_cast<double>(model.hidden_size);
  const auto heads = static_cast<double>(model.num_heads);
  const double q_width = heads * static_cast<double>(model.head_dim);
  const double v_width = heads * static_cast<double>(model.value_dim());
  // A token passes the experts that it is sent to.
  const auto ffn =
      static_cast<double>(model.num_experts == 0 ? model.ffn_size
                                                 : model.experts_per_token * model.expert_ffn_size +
                                                       model.shared_ffn_size);
  const double mlp_matrices = model.is_gated() ? 3 : 2;
  double weights =
      v_width * width + mlp_matrices * width * ffn + width * static_cast<double>(model.num_experts);
  if (model.shared_expert_gate) weights += width;
  if (model.is_latent()) {
    const LatentAttention& latent = model.latent;
    const auto q_rank = static_cast<double>(latent.query_rank);
    const auto kv_rank = static_cast<double>(latent.kv_rank);
    weights += q_rank > 0 ? q_rank * (width + q_width) : width * q_width;
    weights += width * (kv_rank + static_cast<double>(latent.rope_dim)) +
               kv_rank * (heads * static_cast<double>(latent.nope_dim) + v_width);
  } else {
    const auto kv_width = static_cast<double>(model.num_kv_heads * model.head_dim);
    weights += width * (q_width + 2 * kv_width);
  }
  // q k^T and the sum over v: 2 * T * H * E each over all pairs; causality needs half of them.
  const double attention = static_cast<double>(seq_len) * (q_width + v_width);
  return 2 * weights + attention;
}

double HeadForwardFlopsPerToken(const ModelShape& model) {
  return 2 * static_cast<double>(model.hidden_size) * static_cast<double>(model.vocab_size);
}

Words WordsOf(ModelFamily) {
  static constexpr absl::string_view kWords[] = {"gpt2", "llama"};
  return kWords;
}

absl::string_view ModelTypeOf(const ModelShape& model) {
  if (model.is_latent()) return "deepseek_v3";
  if (model.num_experts > 0) return model.qk_norms ? "qwen3_moe" : "mixtral";
  if (model.qk_norms) return "qwen3";
  if (model.layer_norms || model.plain_ffn) return "nemotron";
  return WordOf(model.family);
}

absl::StatusOr<ModelFamily> ParseFamily(absl::string_view name) {
  return ParseWord<ModelFamily>(name, "a model family that weft knows");
}

}  // namespace weft
