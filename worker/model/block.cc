#include "worker/model/block.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/block/block_buffers.h"
#include "plan/errors.h"
#include "plan/shards/batch_order.h"
#include "worker/model/context.h"
#include "worker/model/rotary.h"

namespace weft {

Block::Block(const ModelShape& model, int64_t block, const AttentionShape& attention,
             const Parameters& parameters, const FusedLinears& fused, Recompute recompute,
             Fp8Linear* fp8, Fp8Codes* codes, TokenCut& tokens, Device& device, RankGroups& groups)
    : device_(device),
      groups_(groups),
      tokens_(tokens),
      recompute_(recompute),
      attention_(attention),
      model_(model) {
  const std::string prefix = absl::StrCat("blocks.", block, ".");
  bucket_ = parameters.Get(prefix + "norm1.weight").bucket;
  norm1_ = parameters.GetNorm(prefix + "norm1");
  norm2_ = parameters.GetNorm(prefix + "norm2");
  q_ = parameters.GetLinear(prefix + "attn.q");
  k_ = parameters.GetLinear(prefix + "attn.k");
  v_ = parameters.GetLinear(prefix + "attn.v");
  o_ = parameters.GetLinear(prefix + "attn.o");
  up_ = parameters.GetLinear(prefix + "mlp.up");
  down_ = parameters.GetLinear(prefix + "mlp.down");
  if (parameters.Find(prefix + "mlp.gate.weight") != nullptr) {
    gate_ = parameters.GetLinear(prefix + "mlp.gate");
  }
  if (fused.qkv) {
    qkv_ = parameters.GetFusedLinear({prefix + "attn.q", prefix + "attn.k", prefix + "attn.v"});
    attention_.query_row_stride = qkv_->weight.rows;
    // Else keys and values are gathered, into matrices of their own.
    if (groups_.layout().cp == 1) attention_.key_row_stride = qkv_->weight.rows;
  }
  if (fused.gate_up) {
    gate_up_ = parameters.GetFusedLinear({prefix + "mlp.gate", prefix + "mlp.up"});
  }
  if (fp8 != nullptr) UseFp8(*fp8, codes);
}

void Block::UseFp8(Fp8Linear& fp8, Fp8Codes* codes) {
  fp8_ = &fp8;
  const auto use = [&](Linear& linear) {
    linear.fp8 = &fp8;
    linear.fp8_weight.wide = linear.weight;
    if (codes == nullptr) return;
    linear.fp8_weight = codes->Take(linear.weight);
    kept_.push_back(linear.fp8_weight);
  };
  const Fp8Layers& layers = fp8.layers();
  if (qkv_ && layers.query) {
    use(*qkv_);
  } else {
    if (layers.query) use(q_);
    for (Linear* const linear : {&k_, &v_}) {
      if (layers.key) use(*linear);
    }
  }
  if (layers.query) use(o_);
  if (gate_up_ && layers.mlp) {
    use(*gate_up_);
  } else {
    if (gate_ && layers.mlp) use(*gate_);
    if (layers.mlp) use(up_);
  }
  if (layers.mlp) use(down_);
  CHECK(codes == nullptr || codes->is_used_up());
}

void Block::RenewCodes() {
  if (!std::exchange(are_codes_old_, false)) return;
  for (const Fp8Weight& weight : kept_) fp8_->Renew(weight);
}

BlockActivations BlockActivations::With(const BlockActivations& rest) const {
  BlockActivations whole = *this;
  const auto fill = [](View& view, const View& other) {
    if (view.data == nullptr) view = other;
  };
  fill(whole.x, rest.x);
  fill(whole.norm1.mean, rest.norm1.mean);
  fill(whole.norm1.rstd, rest.norm1.rstd);
  fill(whole.norm1_out, rest.norm1_out);
  fill(whole.qkv.all, rest.qkv.all);
  fill(whole.qkv.q, rest.qkv.q);
  fill(whole.qkv.k, rest.qkv.k);
  fill(whole.qkv.v, rest.qkv.v);
  fill(whole.attn, rest.attn);
  fill(whole.lse, rest.lse);
  fill(whole.x_mid, rest.x_mid);
  fill(whole.norm2.mean, rest.norm2.mean);
  fill(whole.norm2.rstd, rest.norm2.rstd);
  fill(whole.norm2_out, rest.norm2_out);
  fill(whole.mlp.all, rest.mlp.all);
  fill(whole.mlp.gate, rest.mlp.gate);
  fill(whole.mlp.up, rest.mlp.up);
  fill(whole.act, rest.act);
  return whole;
}

namespace {

void CopyOutputs(absl::Span<const LinearOutput> to, absl::Span<const LinearOutput> from,
                 Device& device) {
  for (size_t i = 0; i < to.size(); ++i) device.Copy(to[i].y, from[i].y);
}

// `get`(name, cols) returns a buffer [N, cols], or null where it is none of the caller's; names
// start with `prefix`.
template <typename Get>
QkvViews GetQkv(bool fused, const std::string& prefix, int64_t query, int64_t key, const Get& get) {
  if (!fused) {
    return {
        .q = get(prefix + "q", query), .k = get(prefix + "k", key), .v = get(prefix + "v", key)};
  }
  const View all = get(prefix + "qkv", query + 2 * key);
  if (all.data == nullptr) return {};
  return {all, all.ColRange(0, query), all.ColRange(query, key), all.ColRange(query + key, key)};
}

template <typename Get>
GateUpViews GetGateUp(bool fused, bool has_gate, const std::string& prefix, int64_t ffn,
                      const Get& get) {
  if (!fused) {
    return {.gate = has_gate ? get(prefix + "gate", ffn) : View(), .up = get(prefix + "up", ffn)};
  }
  const View all = get(prefix + "gate_up", 2 * ffn);
  if (all.data == nullptr) return {};
  return {all, all.ColRange(0, ffn), all.ColRange(ffn, ffn)};
}

}  // namespace

BlockActivations Block::GetActivations(Share share, const std::string& prefix, Arena& arena) const {
  const int64_t rows = attention_.batch * attention_.query_len();
  const int64_t part_rows = tokens_.part_rows();
  const int64_t hidden = norm1_.weight.cols;
  const int64_t query = attention_.heads * attention_.head_dim;
  const int64_t key = attention_.kv_heads * attention_.head_dim;
  const int64_t ffn = up_.weight.rows;
  const SavedBuffers all = SavedBuffersOf(
      FusedOpsOf(model_, 0, {.qkv = qkv_.has_value(), .gate_up = gate_up_.has_value()}),
      recompute_);
  const std::vector<BlockBuffer>& buffers = share == Share::kKept ? all.kept : all.made_again;
  const auto get_rows = [&](absl::string_view name, int64_t name_rows, int64_t cols) {
    if (std::none_of(buffers.begin(), buffers.end(),
                     [&](const BlockBuffer& buffer) { return buffer.name == name; })) {
      return View();
    }
    return arena.Get(absl::StrCat(prefix, "/", name), name_rows, cols);
  };
  const auto get = [&](absl::string_view name, int64_t cols) { return get_rows(name, rows, cols); };
  const auto get_part = [&](absl::string_view name, int64_t cols) {
    return get_rows(name, part_rows, cols);
  };
  const auto get_statistics = [&](absl::string_view norm_name, const Norm& norm) {
    NormStatistics statistics;
    if (norm.bias.data != nullptr) statistics.mean = get_part(absl::StrCat(norm_name, "_mean"), 1);
    statistics.rstd = get_part(absl::StrCat(norm_name, "_rstd"), 1);
    return statistics;
  };
  BlockActivations saved;
  saved.x = get_part("x", hidden);
  saved.norm1 = get_statistics("norm1", norm1_);
  saved.norm1_out = get_part("norm1_out", hidden);
  saved.qkv = GetQkv(qkv_.has_value(), "", query, key, get);
  saved.attn = get("attn", query);
  saved.lse = get_rows("lse", attention_.batch * attention_.heads, attention_.query_len());
  saved.x_mid = get_part("x_mid", hidden);
  saved.norm2 = get_statistics("norm2", norm2_);
  saved.norm2_out = get_part("norm2_out", hidden);
  saved.mlp = GetGateUp(gate_up_.has_value(), gate_.has_value(), "", ffn, get);
  saved.act = get("act", ffn);
  return saved;
}

BlockWorkspace Block::GetWorkspace(Arena& arena) const {
  const int64_t rows = attention_.batch * attention_.query_len();
  const int64_t query = attention_.heads * attention_.head_dim;
  const int64_t key = attention_.kv_heads * attention_.head_dim;
  BlockWorkspace work;
  work.dnorm = arena.Get("work/dnorm", rows, norm1_.weight.cols);
  const auto get = [&](const std::string& name, int64_t cols) {
    return arena.Get("work/" + name, rows, cols);
  };
  work.dmlp = GetGateUp(gate_up_.has_value(), gate_.has_value(), "d", up_.weight.rows, get);
  work.dattn = get("dattn", query);
  work.dqkv = GetQkv(qkv_.has_value(), "d", query, key, get);
  if (groups_.layout().cp > 1) {
    const int64_t keys = attention_.batch * attention_.seq_len;
    work.keys = arena.Get("work/keys", keys, key);
    work.values = arena.Get("work/values", keys, key);
    work.dkeys = arena.Get("work/dkeys", keys, key);
    work.dvalues = arena.Get("work/dvalues", keys, key);
  }
  work.scores = arena.Row("work/scores");
  if (model_.family == ModelFamily::kLlama) {
    work.rotary = arena.Get("work/rotary", attention_.query_len(), attention_.head_dim);
    const std::vector<int64_t> positions =
        PositionsOf(groups_.layout(), attention_.seq_len, groups_.at().cp);
    device_.CopyIn(work.rotary, RotaryTable(model_, positions).data());
  }
  return work;
}

AttentionShape Block::AttentionOf(int64_t documents) const {
  AttentionShape shape = attention_;
  shape.documents = documents;
  return shape;
}

const char* Block::PrepareAttention(const BlockWorkspace& work, bool masks_documents,
                                    int64_t documents) const {
  return device_.PrepareAttention(AttentionOf(documents), q_.weight.dtype, masks_documents,
                                  work.scores);
}

std::vector<LinearOutput> Block::WithLayers(const QkvViews& views) const {
  if (qkv_) return {{*qkv_, views.all}};
  return {{q_, views.q}, {k_, views.k}, {v_, views.v}};
}

std::vector<LinearOutput> Block::WithLayers(const GateUpViews& views) const {
  if (gate_up_) return {{*gate_up_, views.all}};
  if (gate_) return {{up_, views.up}, {*gate_, views.gate}};
  return {{up_, views.up}};
}

void Block::Rotate(const BlockWorkspace& work, Turn turn, const QkvViews& views) {
  if (work.rotary.data == nullptr) return;
  if (qkv_) {
    return device_.Rotate(work.rotary, turn, views.all.ColRange(0, views.q.cols + views.k.cols));
  }
  device_.Rotate(work.rotary, turn, views.q);
  device_.Rotate(work.rotary, turn, views.k);
}

absl::Status Block::Forward(const BlockActivations& saved, const BlockWorkspace& work, View out) {
  RETURN_IF_ERROR(FillActivations(saved, work));
  return AddBranch(down_, saved.act, saved.x_mid, out);
}

absl::Status Block::AddBranch(const Linear& linear, View x, View residual, View out) {
  if (groups_.layout().tp == 1) {
    ForwardLinear(linear, x, residual, out, device_);
    return absl::OkStatus();
  }
  MultiplyLinear(linear, x, tokens_.Partial(out), device_);
  RETURN_IF_ERROR(tokens_.Sum(out));
  if (linear.bias.data != nullptr) device_.AddBias(linear.bias, out);  // after the sum: once
  device_.Add(residual, out);
  return absl::OkStatus();
}

absl::Status Block::FillActivations(const BlockActivations& saved, const BlockWorkspace& work) {
  ForwardNorm(norm1_, model_.norm_eps, saved.x, saved.norm1_out, saved.norm1, device_);
  ASSIGN_OR_RETURN(const View to_attention, tokens_.Gather(saved.norm1_out));
  ForwardLinears(to_attention, WithLayers(saved.qkv), device_);
  Rotate(work, Turn::kForth, saved.qkv);
  ASSIGN_OR_RETURN(const KeyValues whole, GatherKeys(saved, work));
  device_.Attention(AttentionOf(work.documents), saved.qkv.q, whole.k, whole.v, work.first_visible,
                    saved.attn, saved.lse, work.scores);
  RETURN_IF_ERROR(AddBranch(o_, saved.attn, saved.x, saved.x_mid));

  ForwardNorm(norm2_, model_.norm_eps, saved.x_mid, saved.norm2_out, saved.norm2, device_);
  ASSIGN_OR_RETURN(const View to_mlp, tokens_.Gather(saved.norm2_out));
  if (gate_) {
    ForwardLinears(to_mlp, WithLayers(saved.mlp), device_);
    device_.SwiGlu(saved.mlp.gate, saved.mlp.up, saved.act);
  } else {
    ForwardLinearGelu(up_, to_mlp, saved.mlp.up, saved.act, device_);
  }
  return absl::OkStatus();
}

// Gathered again for the backward pass: kept, they would take cp times the memory of a rank's own.
absl::StatusOr<Block::KeyValues> Block::GatherKeys(const BlockActivations& saved,
                                                   const BlockWorkspace& work) {
  if (groups_.layout().cp == 1) return KeyValues{saved.qkv.k, saved.qkv.v};
  RETURN_IF_ERROR(
      GatherSequences(attention_.batch, saved.qkv.k, work.dkeys, work.keys, device_, groups_));
  RETURN_IF_ERROR(
      GatherSequences(attention_.batch, saved.qkv.v, work.dvalues, work.values, device_, groups_));
  return KeyValues{work.keys, work.values};
}

absl::Status Block::MakeAgain(const BlockActivations& saved, const BlockWorkspace& work) {
  switch (recompute_) {
    case Recompute::kNone:
      return absl::OkStatus();
    case Recompute::kSelective:
      ForwardNorm(norm1_, model_.norm_eps, saved.x, saved.norm1_out, saved.norm1, device_);
      ForwardNorm(norm2_, model_.norm_eps, saved.x_mid, saved.norm2_out, saved.norm2, device_);
      if (gate_) {
        device_.SwiGlu(saved.mlp.gate, saved.mlp.up, saved.act);
      } else {
        device_.Gelu(saved.mlp.up, saved.act);
      }
      return absl::OkStatus();
    case Recompute::kFull:
      return FillActivations(saved, work);
  }
  CHECK(false);
  return absl::OkStatus();
}

absl::Status Block::Backward(const BlockActivations& saved, const BlockWorkspace& work, View dx) {
  RETURN_IF_ERROR(MakeAgain(saved, work));
  RETURN_IF_ERROR(BackwardMlp(saved, work, dx, Part::kWhole));
  return BackwardAttention(saved, work, dx, Part::kWhole);
}

absl::Status Block::BackwardInput(const BlockActivations& saved, const BlockWorkspace& work,
                                  View dx) {
  RETURN_IF_ERROR(MakeAgain(saved, work));
  RETURN_IF_ERROR(BackwardMlp(saved, work, dx, Part::kInput));
  CopyOutputs(WithLayers(saved.mlp), WithLayers(work.dmlp), device_);
  device_.Copy(saved.x_mid, dx);
  RETURN_IF_ERROR(BackwardAttention(saved, work, dx, Part::kInput));
  CopyOutputs(WithLayers(saved.qkv), WithLayers(work.dqkv), device_);
  return absl::OkStatus();
}

absl::Status Block::BackwardWeight(const BlockActivations& saved, View dy) {
  ASSIGN_OR_RETURN(const View dy_mlp, tokens_.Gather(dy));
  BackwardLinearWeights({{down_, dy_mlp}}, saved.act, device_);
  ASSIGN_OR_RETURN(const View to_mlp, tokens_.Gather(saved.norm2_out));
  BackwardLinearWeights(WithLayers(saved.mlp), to_mlp, device_);
  ASSIGN_OR_RETURN(const View dy_attention, tokens_.Gather(saved.x_mid));
  BackwardLinearWeights({{o_, dy_attention}}, saved.attn, device_);
  ASSIGN_OR_RETURN(const View to_attention, tokens_.Gather(saved.norm1_out));
  BackwardLinearWeights(WithLayers(saved.qkv), to_attention, device_);
  return absl::OkStatus();
}

void Block::BackwardThrough(const LinearOutput& gradient, View x, View dx, Part part) {
  if (part == Part::kWhole) {
    BackwardLinears({gradient}, x, dx, device_);
  } else {
    BackwardLinearInputs({gradient}, dx, device_);
  }
}

absl::StatusOr<View> Block::BackwardToNorm(absl::Span<const LinearOutput> gradients, View norm_out,
                                           View dnorm, Part part) {
  if (part == Part::kInput) {
    BackwardLinearInputs(gradients, dnorm, device_);
    return tokens_.SumOwn(dnorm);
  }
  if (groups_.layout().tp == 1) {
    BackwardLinears(gradients, norm_out, dnorm, device_);
    return dnorm;
  }
  RETURN_IF_ERROR(tokens_.StartGather(norm_out));
  const auto sum = [&]() -> absl::StatusOr<View> {
    ASSIGN_OR_RETURN(const View x, tokens_.EndGather(norm_out));
    RETURN_IF_ERROR(tokens_.StartSumOwn(dnorm));
    return x;
  };
  RETURN_IF_ERROR(BackwardLinears(gradients, dnorm, sum, device_));
  return tokens_.EndSumOwn(dnorm);
}

// The residual passes dx on unchanged; the branch adds its part through the norm.
absl::Status Block::BackwardMlp(const BlockActivations& saved, const BlockWorkspace& work, View dx,
                                Part part) {
  ASSIGN_OR_RETURN(const View dy, tokens_.Gather(dx));
  const View dact = work.dmlp.up;
  if (gate_) {
    BackwardThrough({down_, dy}, saved.act, dact, part);
    device_.SwiGluGradient(dact, saved.mlp.gate, saved.mlp.up, work.dmlp.gate, work.dmlp.up);
  } else if (down_.is_fp8()) {
    BackwardThrough({down_, dy}, saved.act, dact, part);
    device_.GeluGradient(dact, saved.mlp.up, work.dmlp.up);
  } else {
    if (part == Part::kWhole) BackwardLinearWeights({{down_, dy}}, saved.act, device_);
    device_.GeluLinearGradient(dy, down_.weight, saved.mlp.up, work.dmlp.up);
  }
  ASSIGN_OR_RETURN(const View dnorm,
                   BackwardToNorm(WithLayers(work.dmlp), saved.norm2_out, work.dnorm, part));
  BackwardNorm(norm2_, dnorm, saved.x_mid, saved.norm2, dx, device_);
  return absl::OkStatus();
}

absl::Status Block::BackwardAttention(const BlockActivations& saved, const BlockWorkspace& work,
                                      View dx, Part part) {
  ASSIGN_OR_RETURN(const View dy, tokens_.Gather(dx));
  BackwardThrough({o_, dy}, saved.attn, work.dattn, part);
  ASSIGN_OR_RETURN(const KeyValues whole, GatherKeys(saved, work));
  const bool is_whole = groups_.layout().cp == 1;
  device_.AttentionGradient(AttentionOf(work.documents), saved.qkv.q, whole.k, whole.v,
                            work.first_visible, saved.attn, saved.lse, work.dattn, work.dqkv.q,
                            is_whole ? work.dqkv.k : work.dkeys,
                            is_whole ? work.dqkv.v : work.dvalues, work.scores);
  if (!is_whole) {
    RETURN_IF_ERROR(SumScatterSequences(attention_.batch, work.dkeys, work.keys, work.dqkv.k,
                                        device_, groups_));
    RETURN_IF_ERROR(SumScatterSequences(attention_.batch, work.dvalues, work.values, work.dqkv.v,
                                        device_, groups_));
  }
  Rotate(work, Turn::kBack, work.dqkv);
  ASSIGN_OR_RETURN(const View dnorm,
                   BackwardToNorm(WithLayers(work.dqkv), saved.norm1_out, work.dnorm, part));
  BackwardNorm(norm1_, dnorm, saved.x, saved.norm1, dx, device_);
  return absl::OkStatus();
}

}  // namespace weft
