#include "plan/block/block_ops.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

class Builder {
 public:
  Builder(const ModelShape& model, int64_t block) : model_(model), of_block_(block) {}

  int AddValue(absl::string_view name, Rows rows, const Dim& cols) {
    block_.values.push_back({.name = name, .rows = rows, .cols = cols});
    return static_cast<int>(block_.values.size()) - 1;
  }
  int AddStatistic(absl::string_view name, Rows rows, const Dim& cols) {
    const int value = AddValue(name, rows, cols);
    block_.values.back().is_statistic = true;
    return value;
  }
  int AddOp(BlockOp op, int out) {
    op.out = {out};
    block_.ops.push_back(std::move(op));
    return out;
  }

  // Names of a norm's values, which are literals.
  struct NormNames {
    absl::string_view param, out, mean, rstd;
  };
  // Over a row of `in`, which tp does not cut.
  int AddNorm(const NormNames& names, int in, bool has_mean) {
    const BlockValue x = block_.values[static_cast<size_t>(in)];
    BlockOp op = {.kind = OpKind::kNorm, .in = {in}};
    if (has_mean) op.statistics.push_back(AddStatistic(names.mean, x.rows, {}));
    op.statistics.push_back(AddStatistic(names.rstd, x.rows, {}));
    const GradientSum sum = x.rows == Rows::kPart ? GradientSum::kOwnTokens : GradientSum::kNone;
    op.params.push_back(AddVector(names.param, ".weight", x.cols, sum, FirstWeights()));
    if (has_mean && model_.has_norm_biases()) {
      op.params.push_back(AddVector(names.param, ".bias", x.cols, sum, InitialValue::kZero));
    }
    return AddOp(std::move(op), AddValue(names.out, x.rows, x.cols));
  }
  // Over each head of `in`, whose weight all heads share.
  int AddHeadNorm(const NormNames& names, int in) {
    const BlockValue heads = block_.values[static_cast<size_t>(in)];
    const Dim each = {.count = heads.cols.count / heads.cols.unit, .cut = DimCut::kTensor};
    BlockOp op = {.kind = OpKind::kHeadNorm, .in = {in}};
    op.statistics = {AddStatistic(names.rstd, heads.rows, each)};
    op.params = {AddVector(names.param, ".weight", {.count = heads.cols.unit},
                           GradientSum::kOwnHeads, FirstWeights())};
    return AddOp(std::move(op), AddValue(names.out, heads.rows, heads.cols));
  }

  // Over all heads of `in` together; each element has a weight of its own.
  int AddWideNorm(const NormNames& names, int in) {
    const BlockValue heads = block_.values[static_cast<size_t>(in)];
    BlockOp op = {.kind = OpKind::kWideNorm, .in = {in}};
    op.statistics = {AddStatistic(names.rstd, heads.rows, {})};
    op.params = {AddVector(names.param, ".weight", heads.cols, GradientSum::kNone, FirstWeights())};
    return AddOp(std::move(op), AddValue(names.out, heads.rows, heads.cols));
  }

  struct LinearLayer {
    absl::string_view param;  // "attn.q"
    absl::string_view out;    // name of its output
    Dim cols;                 // of the output
    bool has_bias = false;
    absl::string_view joint = {};
    int64_t experts = 0;
    bool is_summed = false;  // each tp rank then has its part of the sum
  };
  // A product cut by its inputs gives each tp rank a term of the sum, for all its tokens.
  int AddLinear(const LinearLayer& layer, int in, double std) {
    const BlockValue x = block_.values[static_cast<size_t>(in)];
    BlockOp op = {.kind = OpKind::kLinear, .in = {in}, .joint = layer.joint};
    op.params.push_back(static_cast<int>(block_.params.size()));
    block_.params.push_back({.name = absl::StrCat(layer.param, ".weight"),
                             .out = layer.cols,
                             .in = x.cols,
                             .experts = layer.experts,
                             .initial_std = std});
    if (layer.has_bias) {
      op.params.push_back(
          AddVector(layer.param, ".bias", layer.cols, GradientSum::kNone, InitialValue::kZero));
    }
    const bool is_cut = layer.cols.cut != DimCut::kWhole || x.cols.cut != DimCut::kWhole;
    const Rows terms = is_cut && x.rows == Rows::kPart ? Rows::kTokens : x.rows;
    const Rows rows = layer.is_summed ? Rows::kPart : terms;
    return AddOp(std::move(op), AddValue(layer.out, rows, layer.cols));
  }

  int AddRotation(absl::string_view name, int in) {
    const BlockValue x = block_.values[static_cast<size_t>(in)];
    const int out = AddValue(name, x.rows, x.cols);
    block_.values.back().place = in;
    return AddOp({.kind = OpKind::kRotate,
                  .in = {in},
                  .turns = model_.turns_in(of_block_),
                  .are_interleaved = model_.interleaved_rotation,
                  .angles = model_.rotation_of(of_block_)},
                 out);
  }

  // `in`: queries, keys and values.
  int AddAttention(const std::vector<int>& in, const Dim& out) {
    const Dim heads = {.count = model_.num_heads, .cut = DimCut::kTensor};
    const int lse = AddStatistic("lse", Rows::kTokens, heads);
    return AddOp({.kind = OpKind::kAttention,
                  .in = in,
                  .statistics = {lse},
                  .window = model_.window_of(of_block_)},
                 AddValue("attn", Rows::kTokens, out));
  }

  // The first branch is a sum in the place of the result before the residual is added to it.
  // `scaled`: the branch's name once it was multiplied, where the model does so.
  int AddResidual(absl::string_view name, absl::string_view scaled, int residual,
                  std::vector<int> branches) {
    if (model_.residual_multiplier != 1) {
      for (int& branch : branches) branch = AddScaled(scaled, branch);
    }
    const int out = AddValue(name, Rows::kPart, Whole(model_.hidden_size));
    block_.values[static_cast<size_t>(branches.front())].place = out;
    BlockOp op = {.kind = OpKind::kAdd, .in = {residual}};
    op.in.insert(op.in.end(), branches.begin(), branches.end());
    return AddOp(std::move(op), out);
  }

  // The branches are terms of one sum, in the place of the result.
  int AddTerms(absl::string_view name, int residual, std::initializer_list<int> branches) {
    const int out = AddValue(name, Rows::kPart, Whole(model_.hidden_size));
    PlaceIn(out, branches);
    BlockOp op = {.kind = OpKind::kAdd, .in = {residual}};
    op.in.insert(op.in.end(), branches.begin(), branches.end());
    return AddOp(std::move(op), out);
  }

  // In the same place.
  int AddScaled(absl::string_view name, int in) {
    const BlockValue x = block_.values[static_cast<size_t>(in)];
    const int out = AddValue(name, x.rows, x.cols);
    block_.values[static_cast<size_t>(in)].place = out;
    return AddOp({.kind = OpKind::kScale, .in = {in}, .factor = model_.residual_multiplier}, out);
  }

  // `parts` lie in the memory of `whole`.
  void PlaceIn(int whole, std::initializer_list<int> parts) {
    for (const int part : parts) block_.values[static_cast<size_t>(part)].place = whole;
  }

  void SwapLastTwo() { std::swap(block_.ops.end()[-1], block_.ops.end()[-2]); }

  static Dim Whole(int64_t count) { return {.count = count}; }
  // `count` units of `size` elements.
  static Dim Units(int64_t count, int64_t size) {
    return {.count = count * size, .unit = size, .cut = DimCut::kTensor};
  }

  BlockOps Take(int output) {
    block_.output = output;
    return std::move(block_);
  }

 private:
  InitialValue FirstWeights() const {
    return model_.norm_offset == 1 ? InitialValue::kZero : InitialValue::kOne;
  }

  int AddVector(absl::string_view layer, absl::string_view kind, Dim extent, GradientSum sum,
                InitialValue initial) {
    block_.params.push_back(
        {.name = absl::StrCat(layer, kind), .out = extent, .sum = sum, .initial = initial});
    return static_cast<int>(block_.params.size()) - 1;
  }

  const ModelShape& model_;
  const int64_t of_block_;
  BlockOps block_;
};

// Radford et al., GPT-2, 2.3: residual projections start at 1/sqrt(N) for N residual layers.
double ResidualStd(const ModelShape& model) {
  const double std = model.initializer_range;
  return model.scaled_residual_init ? std / std::sqrt(2.0 * static_cast<double>(model.num_blocks))
                                    : std;
}

// Queries, keys and values of whole heads.
struct QueryKeyValue {
  int q = 0, k = 0, v = 0;
};
QueryKeyValue AddQueryKeyValue(const ModelShape& model, int in, Builder& builder) {
  const bool biased = model.attention_bias;
  const double std = model.initializer_range;
  const Dim queries = Builder::Units(model.num_heads, model.head_dim);
  const Dim keys = Builder::Units(model.num_kv_heads, model.head_dim);
  // A norm takes no columns of a wider matrix.
  const absl::string_view joint = model.qk_norms ? "" : "qkv";
  const int q = builder.AddLinear({"attn.q", "q", queries, biased, joint}, in, std);
  const int k = builder.AddLinear({"attn.k", "k", keys, biased, joint}, in, std);
  return {q, k, builder.AddLinear({"attn.v", "v", keys, biased, joint}, in, std)};
}

// Attention over them.
int AddAttentionOf(const ModelShape& model, const QueryKeyValue& heads, Builder& builder) {
  auto [q, k, v] = heads;
  if (model.wide_qk_norms) {
    q = builder.AddWideNorm({"attn.q_norm", "q_normed", "", "q_rstd"}, q);
    k = builder.AddWideNorm({"attn.k_norm", "k_normed", "", "k_rstd"}, k);
  } else if (model.qk_norms) {
    q = builder.AddHeadNorm({"attn.q_norm", "q_normed", "", "q_rstd"}, q);
    k = builder.AddHeadNorm({"attn.k_norm", "k_normed", "", "k_rstd"}, k);
  }
  if (!model.learned_positions) {
    q = builder.AddRotation("q_turned", q);
    k = builder.AddRotation("k_turned", k);
  }
  return builder.AddAttention({q, k, v}, Builder::Units(model.num_heads, model.head_dim));
}

// Queries, keys and values that are made of low ranks (DeepSeek-V2, arXiv:2405.04434, 2.1.2). The
// ranks are whole on each tp rank, for its part of the tokens.
int AddLatentAttention(const ModelShape& model, int in, Builder& builder) {
  const LatentAttention& latent = model.latent;
  const double std = model.initializer_range;
  const Dim queries = Builder::Units(model.num_heads, model.head_dim);
  const Dim values = Builder::Units(model.num_heads, latent.value_dim);
  int q = in;
  if (latent.query_rank > 0) {
    q = builder.AddLinear({"attn.q_down", "q_latent", Builder::Whole(latent.query_rank)}, q, std);
    q = builder.AddNorm({"attn.q_norm", "q_latent_normed", "", "q_latent_rstd"}, q, false);
    q = builder.AddLinear({"attn.q_up", "q", queries}, q, std);
  } else {
    q = builder.AddLinear({"attn.q", "q", queries}, q, std);
  }
  q = builder.AddRotation("q_turned", q);
  const Dim ranks = Builder::Whole(latent.kv_rank + latent.rope_dim);
  const int down = builder.AddLinear({"attn.kv_down", "kv_down", ranks}, in, std);
  // Columns of the latents, and of the key with position that all heads share.
  const int c = builder.AddValue("kv_latent", Rows::kPart, Builder::Whole(latent.kv_rank));
  const int shared = builder.AddValue("k_rope", Rows::kPart, Builder::Whole(latent.rope_dim));
  builder.PlaceIn(down, {c, shared});
  const int normed =
      builder.AddNorm({"attn.kv_norm", "kv_latent_normed", "", "kv_latent_rstd"}, c, false);
  const Dim up = Builder::Units(model.num_heads, latent.nope_dim + latent.value_dim);
  const int kv = builder.AddLinear({"attn.kv_up", "kv_up", up}, normed, std);
  const int turned = builder.AddRotation("k_rope_turned", shared);
  const int k = builder.AddOp({.kind = OpKind::kJoinHeads, .in = {kv, turned}},
                              builder.AddValue("k", Rows::kTokens, queries));
  const int v = builder.AddValue("v", Rows::kTokens, values);
  builder.PlaceIn(kv, {v});
  return builder.AddAttention({q, k, v}, values);
}

// Names of a feed-forward's layers and values, which are literals.
struct FeedForwardNames {
  absl::string_view gate_layer, up_layer, down_layer;
  absl::string_view gate, up, act, out;
  absl::string_view joint;  // of gate and up
};

// REQUIRES: CheckModel.
OpKind ActivationOf(const ModelShape& model) {
  const bool is_gelu = model.activation == Activation::kGelu;
  if (model.is_gated()) return is_gelu ? OpKind::kGeGlu : OpKind::kSwiGlu;
  if (model.activation == Activation::kErfGelu) return OpKind::kErfGelu;
  return is_gelu ? OpKind::kGelu : OpKind::kSquaredRelu;
}

// A FeedForward has inner columns, and maybe experts (0: none).
struct FeedForward {
  FeedForwardNames names;
  Dim inner;
  int64_t experts = 0;
};

// Returns gate and up, or up alone.
std::vector<int> AddInner(const ModelShape& model, const FeedForward& of, int in,
                          Builder& builder) {
  const auto& [names, inner, experts] = of;
  const bool biased = model.ffn_bias;
  const double std = model.initializer_range;
  std::vector<int> made;
  if (model.is_gated()) {
    made.push_back(builder.AddLinear(
        {names.gate_layer, names.gate, inner, biased, names.joint, experts}, in, std));
  }
  made.push_back(builder.AddLinear(
      {names.up_layer, names.up, inner, biased, model.is_gated() ? names.joint : "", experts}, in,
      std));
  // The gradient of their input is a sum, to which up gives its term first.
  if (model.is_gated()) builder.SwapLastTwo();
  return made;
}

int AddActivation(const ModelShape& model, const FeedForward& of, std::vector<int> made,
                  Builder& builder) {
  const Rows rows = of.experts > 0 ? Rows::kRouted : Rows::kTokens;
  return builder.AddOp({.kind = ActivationOf(model), .in = std::move(made)},
                       builder.AddValue(of.names.act, rows, of.inner));
}

int AddDown(const ModelShape& model, const FeedForward& of, int act, Builder& builder) {
  return builder.AddLinear({.param = of.names.down_layer,
                            .out = of.names.out,
                            .cols = Builder::Whole(model.hidden_size),
                            .has_bias = model.ffn_bias,
                            .experts = of.experts,
                            .is_summed = model.post_norms},
                           act, ResidualStd(model));
}

int AddFeedForward(const ModelShape& model, const FeedForward& of, int in, Builder& builder) {
  const int act = AddActivation(model, of, AddInner(model, of, in, builder), builder);
  return AddDown(model, of, act, builder);
}

// Each token to its experts and back; beside them what every token passes.
std::vector<int> AddExperts(const ModelShape& model, int in, Builder& builder) {
  const double std = model.initializer_range;
  const int logits = builder.AddLinear(
      {"mlp.router", "router_logits", Builder::Whole(model.num_experts)}, in, std);
  const Dim chosen = Builder::Whole(model.experts_per_token);
  const int shares = builder.AddOp({.kind = OpKind::kRoute, .in = {logits}},
                                   builder.AddStatistic("expert_shares", Rows::kPart, chosen));
  const Dim hidden = Builder::Whole(model.hidden_size);
  const int routed = builder.AddOp({.kind = OpKind::kDispatch, .in = {in, shares}},
                                   builder.AddValue("routed", Rows::kRouted, hidden));
  const int expert_out =
      AddFeedForward(model,
                     {{"mlp.experts.*.gate", "mlp.experts.*.up", "mlp.experts.*.down",
                       "expert_gate", "expert_up", "expert_act", "expert_out", "expert_gate_up"},
                      {.count = model.expert_ffn_size, .cut = DimCut::kExpertTensor},
                      model.num_experts},
                     routed, builder);
  std::vector<int> branches = {builder.AddOp({.kind = OpKind::kCombine, .in = {expert_out, shares}},
                                             builder.AddValue("combined", Rows::kPart, hidden))};
  if (model.shared_ffn_size == 0) return branches;
  const int shared =
      AddFeedForward(model,
                     {{"mlp.shared.gate", "mlp.shared.up", "mlp.shared.down", "shared_gate",
                       "shared_up", "shared_act", "shared_out", "shared_gate_up"},
                      Builder::Units(model.shared_ffn_size, 1)},
                     in, builder);
  branches.push_back(shared);
  if (!model.shared_expert_gate) return branches;
  const int logit =
      builder.AddLinear({"mlp.shared_gate", "shared_logit", Builder::Whole(1)}, in, std);
  branches.back() = builder.AddOp({.kind = OpKind::kScaleRows, .in = {shared, logit}},
                                  builder.AddValue("shared_scaled", Rows::kTokens, hidden));
  return branches;
}

constexpr Builder::NormNames kNorm1 = {"norm1", "norm1_out", "norm1_mean", "norm1_rstd"};
constexpr Builder::NormNames kNorm2 = {"norm2", "norm2_out", "norm2_mean", "norm2_rstd"};
constexpr Builder::NormNames kPostNorm1 = {"post_norm1", "attn_normed", "post_norm1_mean",
                                           "post_norm1_rstd"};
constexpr Builder::NormNames kPostNorm2 = {"post_norm2", "mlp_normed", "post_norm2_mean",
                                           "post_norm2_rstd"};

int AddNorm(const Builder::NormNames& names, const ModelShape& model, int in, Builder& builder) {
  return builder.AddNorm(names, in, model.has_layer_norms());
}

int AddAttentionOutput(const ModelShape& model, int attended, Builder& builder) {
  return builder.AddLinear({.param = "attn.o",
                            .out = "attn_out",
                            .cols = Builder::Whole(model.hidden_size),
                            .has_bias = model.has_output_bias(),
                            .is_summed = model.post_norms},
                           attended, ResidualStd(model));
}

FeedForward DenseOf(const ModelShape& model) {
  return {{"mlp.gate", "mlp.up", "mlp.down", "gate", "up", "act", "mlp_out", "gate_up"},
          Builder::Units(model.ffn_size, 1)};
}

// Attention and a feed-forward of one input. Their products that lead back to the residual stand
// beside each other, so that both are terms of one sum over tp; those of one norm's output are one
// step, whose input's gradient is one sum, too.
int AddParallelBranches(const ModelShape& model, int x, Builder& builder) {
  const FeedForward dense = DenseOf(model);
  int act = 0, attended = 0;
  if (model.shares_norm) {
    const int normed = AddNorm(kNorm1, model, x, builder);
    const QueryKeyValue heads = AddQueryKeyValue(model, normed, builder);
    const std::vector<int> inner = AddInner(model, dense, normed, builder);
    attended = AddAttentionOf(model, heads, builder);
    act = AddActivation(model, dense, inner, builder);
  } else {
    const int to_mlp = AddNorm(kNorm2, model, x, builder);
    act = AddActivation(model, dense, AddInner(model, dense, to_mlp, builder), builder);
    const int to_attention = AddNorm(kNorm1, model, x, builder);
    attended = AddAttentionOf(model, AddQueryKeyValue(model, to_attention, builder), builder);
  }
  const int attention_out = AddAttentionOutput(model, attended, builder);
  return builder.AddTerms("out", x, {attention_out, AddDown(model, dense, act, builder)});
}

}  // namespace

int64_t LocalCount(const Dim& dim, const Layout& layout, int tp_index) {
  if (dim.cut == DimCut::kWhole) return dim.count;
  const bool is_expert = dim.cut == DimCut::kExpertTensor;
  const int64_t units = dim.count / dim.unit;
  int64_t parts = is_expert ? layout.expert_tp() : layout.tp;
  int64_t part = tp_index % parts;
  if (units < parts) {
    part /= parts / units;
    parts = units;
  }
  return EvenSplit(units, static_cast<int>(parts), static_cast<int>(part)).size() * dim.unit;
}

const OpRule& RuleOf(OpKind kind) {
  using Gradient = OpRule::Gradient;
  static constexpr OpRule kRules[] = {
      // kNorm, kHeadNorm, kWideNorm
      {.input_reads_in = true, .reads_statistics = true, .is_cheap = true},
      {.input_reads_in = true, .reads_statistics = true},
      {.input_reads_in = true, .reads_statistics = true},
      // kLinear
      {.weight_reads_in = true},
      // kRotate, kJoinHeads
      {.gradient = Gradient::kPasses},
      {},
      // kAttention
      {.input_reads_in = true, .input_reads_out = true, .reads_statistics = true},
      // kScale, kAdd
      {},
      {.gradient = Gradient::kPasses},
      // kGelu, kSquaredRelu, kErfGelu, kSwiGlu, kGeGlu
      {.input_reads_in = true, .is_cheap = true, .gradient = Gradient::kOfLastInput},
      {.input_reads_in = true, .is_cheap = true, .gradient = Gradient::kOfLastInput},
      {.input_reads_in = true, .is_cheap = true, .gradient = Gradient::kOfLastInput},
      {.input_reads_in = true, .is_cheap = true, .gradient = Gradient::kOfLastInput},
      {.input_reads_in = true, .is_cheap = true, .gradient = Gradient::kOfLastInput},
      // kRoute: from the shares that it gave
      {.input_reads_in = true, .input_reads_out = true},
      // kDispatch
      {},
      // kCombine, kScaleRows
      {.input_reads_in = true},
      {.input_reads_in = true},
  };
  return kRules[static_cast<size_t>(kind)];
}

int BlockOps::PlaceOf(int value) const {
  while (values[static_cast<size_t>(value)].place != kOwnPlace) {
    value = values[static_cast<size_t>(value)].place;
  }
  return value;
}

BlockOps OpsOf(const ModelShape& model, int64_t block) {
  Builder builder(model, block);
  const int x = builder.AddValue("x", Rows::kPart, Builder::Whole(model.hidden_size));
  if (model.parallel_residual) return builder.Take(AddParallelBranches(model, x, builder));
  const int to_attention = model.pre_norms ? AddNorm(kNorm1, model, x, builder) : x;
  const int attended =
      model.is_latent()
          ? AddLatentAttention(model, to_attention, builder)
          : AddAttentionOf(model, AddQueryKeyValue(model, to_attention, builder), builder);
  const int attention_out = AddAttentionOutput(model, attended, builder);
  const int attention_branch =
      model.post_norms ? AddNorm(kPostNorm1, model, attention_out, builder) : attention_out;
  const int x_mid = builder.AddResidual("x_mid", "attn_scaled", x, {attention_branch});
  const int to_mlp = model.pre_norms ? AddNorm(kNorm2, model, x_mid, builder) : x_mid;
  std::vector<int> branches;
  if (model.has_experts(block)) {
    branches = AddExperts(model, to_mlp, builder);
  } else {
    branches = {AddFeedForward(model, DenseOf(model), to_mlp, builder)};
    if (model.post_norms) branches = {AddNorm(kPostNorm2, model, branches.front(), builder)};
  }
  return builder.Take(builder.AddResidual("out", "mlp_scaled", x_mid, branches));
}

BlockLists ListsOf(int64_t blocks, const std::function<BlockOps(int64_t block)>& ops) {
  BlockLists all;
  for (int64_t block = 0; block < blocks; ++block) {
    const BlockOps list = ops(block);
    const auto same = std::find(all.kinds.begin(), all.kinds.end(), list);
    all.of_block.push_back(static_cast<size_t>(same - all.kinds.begin()));
    if (same == all.kinds.end()) all.kinds.push_back(list);
    CHECK(list.values == all.kinds.front().values && list.params == all.kinds.front().params);
  }
  return all;
}

BlockOps Fuse(BlockOps block, absl::string_view joint) {
  CHECK(!joint.empty());
  const auto is_one = [&](const BlockOp& op) { return op.joint == joint; };
  const auto first = std::find_if(block.ops.begin(), block.ops.end(), is_one);
  const auto end = std::find_if_not(first, block.ops.end(), is_one);
  if (end - first < 2) return block;
  const auto wide = static_cast<int>(block.values.size());
  BlockValue whole = block.values[static_cast<size_t>(first->out.front())];
  whole.name = joint;
  whole.cols = {.count = 0, .cut = whole.cols.cut};
  BlockOp product = {.kind = OpKind::kLinear, .in = first->in, .out = {wide}};
  for (auto op = first; op != end; ++op) {
    product.params.insert(product.params.end(), op->params.begin(), op->params.end());
    block.values[static_cast<size_t>(op->out.front())].place = wide;
  }
  std::sort(product.params.begin(), product.params.end());
  *first = std::move(product);
  block.ops.erase(first + 1, end);
  block.values.push_back(whole);
  return block;
}

}  // namespace weft
