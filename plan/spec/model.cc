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
    if (model_.family != ModelFamily::kGpt2) return;
    Add(absl::StrCat(name, ".bias"), {model_.hidden_size}, -1, 1, InitialValue::kZero, 0);
    tensors_.back().is_norm = true;
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

void AddBlock(const ModelShape& model, int64_t block, Inventory& inventory) {
  const bool gpt2 = model.family == ModelFamily::kGpt2;
  const double std = model.initializer_range;
  // Radford et al., GPT-2, 2.3: residual projections start at 1/sqrt(N) for N residual layers.
  const double residual_std =
      gpt2 ? std / std::sqrt(2.0 * static_cast<double>(model.num_blocks)) : std;
  const int64_t width = model.hidden_size;
  const int64_t head_dim = model.head_dim;
  const int64_t q_width = model.num_heads * head_dim;
  const int64_t kv_width = model.num_kv_heads * head_dim;
  const std::string prefix = absl::StrCat("blocks.", block, ".");
  inventory.Enter(ModelPart::kBlock, block);
  inventory.AddNorm(prefix + "norm1");
  inventory.AddLinear(prefix + "attn.q", q_width, width, 0, head_dim, std);
  inventory.AddLinear(prefix + "attn.k", kv_width, width, 0, head_dim, std);
  inventory.AddLinear(prefix + "attn.v", kv_width, width, 0, head_dim, std);
  inventory.AddLinear(prefix + "attn.o", width, q_width, 1, head_dim, residual_std);
  inventory.AddNorm(prefix + "norm2");
  const auto add_feed_forward = [&](const std::string& name, int64_t ffn_size) {
    if (!gpt2) inventory.AddLinear(name + ".gate", ffn_size, width, 0, 1, std);
    inventory.AddLinear(name + ".up", ffn_size, width, 0, 1, std);
    inventory.AddLinear(name + ".down", width, ffn_size, 1, 1, residual_std);
  };
  if (model.num_experts == 0) return add_feed_forward(prefix + "mlp", model.ffn_size);
  inventory.AddLinear(prefix + "mlp.router", model.num_experts, width, -1, 1, std);
  for (int64_t expert = 0; expert < model.num_experts; ++expert) {
    add_feed_forward(absl::StrCat(prefix, "mlp.experts.", expert), model.expert_ffn_size);
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

// REQUIRES: the other counts are sound.
void CheckExperts(const ModelShape& model, std::vector<SpecIssue>& issues) {
  constexpr absl::string_view kExperts = "model.num_local_experts";
  if (model.num_experts == 0) return;
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
          .experts_per_token = "num_experts_per_tok"};
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
  // All blocks are alike: one is listed, however many there are.
  ModelShape one_block = model;
  one_block.num_blocks = 1;
  int64_t count = 0;
  for (const TensorSpec& tensor : Tensors(one_block)) {
    count += (tensor.part == ModelPart::kBlock ? model.num_blocks : 1) * tensor.elements();
  }
  return count;
}

int64_t ActiveParameterCount(const ModelShape& model) {
  const int64_t expert = 3 * model.hidden_size * model.expert_ffn_size;
  return ParameterCount(model) -
         model.num_blocks * (model.num_experts - model.experts_per_token) * expert;
}

double BlockForwardFlopsPerToken(const ModelShape& model, int64_t seq_len) {
  const auto width = static_cast<double>(model.hidden_size);
  const auto q_width = static_cast<double>(model.num_heads * model.head_dim);
  const auto kv_width = static_cast<double>(model.num_kv_heads * model.head_dim);
  // A token passes the experts that it is sent to.
  const auto ffn = static_cast<double>(
      model.num_experts == 0 ? model.ffn_size : model.experts_per_token * model.expert_ffn_size);
  const double mlp_matrices = model.family == ModelFamily::kGpt2 ? 2 : 3;
  const double weights = width * (q_width + 2 * kv_width) + q_width * width +
                         mlp_matrices * width * ffn +
                         width * static_cast<double>(model.num_experts);
  // q k^T and the sum over v: 2 * T * H * E each over all pairs; causality needs half of them.
  const double attention = 2 * static_cast<double>(seq_len) * q_width;
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
  return model.num_experts > 0 ? "mixtral" : WordOf(model.family);
}

absl::StatusOr<ModelFamily> ParseFamily(absl::string_view name) {
  return ParseWord<ModelFamily>(name, "a model family that weft knows");
}

}  // namespace weft
