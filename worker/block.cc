#include "worker/block.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

Block::Block(const ModelShape& model, int64_t block, const AttentionShape& attention,
             const Parameters& parameters, Device& device, RankGroups& groups)
    : device_(device), groups_(groups), attention_(attention), norm_eps_(model.norm_eps) {
  const std::string prefix = absl::StrCat("blocks.", block, ".");
  norm1_ = parameters.GetNorm(prefix + "norm1");
  norm2_ = parameters.GetNorm(prefix + "norm2");
  q_ = parameters.GetLinear(prefix + "attn.q");
  k_ = parameters.GetLinear(prefix + "attn.k");
  v_ = parameters.GetLinear(prefix + "attn.v");
  o_ = parameters.GetLinear(prefix + "attn.o");
  up_ = parameters.GetLinear(prefix + "mlp.up");
  down_ = parameters.GetLinear(prefix + "mlp.down");
}

BlockActivations Block::GetActivations(const std::string& prefix, Arena& arena) const {
  const int64_t rows = attention_.batch * attention_.seq_len;
  const int64_t hidden = norm1_.weight.cols;
  const int64_t heads = attention_.heads * attention_.head_dim;
  const int64_t ffn = up_.weight.rows;
  const auto get = [&](absl::string_view name, int64_t cols) {
    return arena.Get(absl::StrCat(prefix, "/", name), rows, cols);
  };
  BlockActivations saved;
  saved.x = get("x", hidden);
  saved.norm1_mean = get("norm1_mean", 1);
  saved.norm1_rstd = get("norm1_rstd", 1);
  saved.norm1_out = get("norm1_out", hidden);
  saved.q = get("q", heads);
  saved.k = get("k", heads);
  saved.v = get("v", heads);
  saved.attn = get("attn", heads);
  saved.lse = arena.Get(absl::StrCat(prefix, "/lse"), attention_.batch * attention_.heads,
                        attention_.seq_len);
  saved.x_mid = get("x_mid", hidden);
  saved.norm2_mean = get("norm2_mean", 1);
  saved.norm2_rstd = get("norm2_rstd", 1);
  saved.norm2_out = get("norm2_out", hidden);
  saved.up = get("up", ffn);
  saved.act = get("act", ffn);
  return saved;
}

BlockWorkspace Block::GetWorkspace(Arena& arena) const {
  const int64_t rows = attention_.batch * attention_.seq_len;
  const int64_t heads = attention_.heads * attention_.head_dim;
  BlockWorkspace work;
  work.dnorm = arena.Get("work/dnorm", rows, norm1_.weight.cols);
  work.dact = arena.Get("work/dact", rows, up_.weight.rows);
  work.dattn = arena.Get("work/dattn", rows, heads);
  work.dq = arena.Get("work/dq", rows, heads);
  work.dk = arena.Get("work/dk", rows, heads);
  work.dv = arena.Get("work/dv", rows, heads);
  work.scores = arena.Get("work/scores", 1, AttentionScratchElements(attention_));
  return work;
}

absl::Status Block::Forward(const BlockActivations& saved, const BlockWorkspace& work, View out) {
  device_.LayerNorm(saved.x, norm1_.weight, norm1_.bias, norm_eps_, saved.norm1_out,
                    saved.norm1_mean, saved.norm1_rstd);
  ForwardLinear(q_, saved.norm1_out, saved.q, device_);
  ForwardLinear(k_, saved.norm1_out, saved.k, device_);
  ForwardLinear(v_, saved.norm1_out, saved.v, device_);
  device_.Attention(attention_, saved.q, saved.k, saved.v, saved.attn, saved.lse, work.scores);
  MultiplyLinear(o_, saved.attn, saved.x_mid, device_);
  RETURN_IF_ERROR(groups_.SumOverTensor(saved.x_mid));
  device_.AddBias(o_.bias, saved.x_mid);  // after the sum: the bias counts once
  device_.Add(saved.x, saved.x_mid);

  device_.LayerNorm(saved.x_mid, norm2_.weight, norm2_.bias, norm_eps_, saved.norm2_out,
                    saved.norm2_mean, saved.norm2_rstd);
  ForwardLinear(up_, saved.norm2_out, saved.up, device_);
  device_.Gelu(saved.up, saved.act);
  MultiplyLinear(down_, saved.act, out, device_);
  RETURN_IF_ERROR(groups_.SumOverTensor(out));
  device_.AddBias(down_.bias, out);
  device_.Add(saved.x_mid, out);
  return absl::OkStatus();
}

absl::Status Block::Backward(const BlockActivations& saved, const BlockWorkspace& work, View dx) {
  RETURN_IF_ERROR(BackwardMlp(saved, work, dx));
  return BackwardAttention(saved, work, dx);
}

// The residual passes dx on unchanged; the branch adds its part through the norm.
absl::Status Block::BackwardMlp(const BlockActivations& saved, const BlockWorkspace& work,
                                View dx) {
  BackwardLinear(down_, dx, saved.act, 0, work.dact, device_);
  device_.GeluGradient(work.dact, saved.up, work.dact);
  BackwardLinear(up_, work.dact, saved.norm2_out, 0, work.dnorm, device_);
  RETURN_IF_ERROR(groups_.SumOverTensor(work.dnorm));
  device_.LayerNormGradient(work.dnorm, saved.x_mid, norm2_.weight, saved.norm2_mean,
                            saved.norm2_rstd, dx, norm2_.weight_gradient, norm2_.bias_gradient);
  return absl::OkStatus();
}

absl::Status Block::BackwardAttention(const BlockActivations& saved, const BlockWorkspace& work,
                                      View dx) {
  BackwardLinear(o_, dx, saved.attn, 0, work.dattn, device_);
  device_.AttentionGradient(attention_, saved.q, saved.k, saved.v, saved.attn, saved.lse,
                            work.dattn, work.dq, work.dk, work.dv, work.scores);
  BackwardLinear(q_, work.dq, saved.norm1_out, 0, work.dnorm, device_);
  BackwardLinear(k_, work.dk, saved.norm1_out, 1, work.dnorm, device_);
  BackwardLinear(v_, work.dv, saved.norm1_out, 1, work.dnorm, device_);
  RETURN_IF_ERROR(groups_.SumOverTensor(work.dnorm));
  device_.LayerNormGradient(work.dnorm, saved.x, norm1_.weight, saved.norm1_mean, saved.norm1_rstd,
                            dx, norm1_.weight_gradient, norm1_.bias_gradient);
  return absl::OkStatus();
}

}  // namespace weft
