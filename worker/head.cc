#include "worker/head.h"

#include "plan/errors.h"

namespace weft {

Head::Head(const ModelShape& model, const Parameters& parameters, int64_t rows, View dnorm,
           Arena& arena, Device& device, RankGroups& groups)
    : device_(device), groups_(groups), norm_eps_(model.norm_eps), dnorm_(dnorm) {
  const Parameter& table =
      parameters.Get(model.tied_embeddings ? kTokenEmbeddingName : "head.weight");
  first_id_ = table.shard.begin[0];
  bucket_ = table.bucket;
  norm_ = parameters.GetNorm("final_norm");
  weight_ = table.weight;
  weight_gradient_ = table.gradient;
  x_ = arena.Get("work/head/x", rows, model.hidden_size);
  if (norm_.bias.data != nullptr) norm_saved_.mean = arena.Get("work/head/norm_mean", rows, 1);
  norm_saved_.rstd = arena.Get("work/head/norm_rstd", rows, 1);
  norm_out_ = arena.Get("work/head/norm_out", rows, model.hidden_size);
  logits_ = arena.Get("work/head/logits", rows, weight_.rows);
  row_max_ = arena.Get("work/head/row_max", rows, 1);
  row_sums_ = arena.Get("work/head/row_sums", 2, rows);
  row_sum_ = {.data = row_sums_.data, .rows = rows, .cols = 1};
  target_logit_ = {.data = static_cast<float*>(row_sums_.data) + rows, .rows = rows, .cols = 1};
}

absl::StatusOr<double> Head::Forward(View targets) {
  ForwardNorm(norm_, norm_eps_, x_, norm_out_, norm_saved_, device_);
  device_.MatMul(norm_out_, Transpose::kNo, weight_, Transpose::kYes, 0, logits_);
  device_.RowMax(logits_, row_max_);
  RETURN_IF_ERROR(groups_.MaxOverTensor(row_max_));
  device_.RowSumExp(logits_, row_max_, targets, first_id_, row_sum_, target_logit_);
  RETURN_IF_ERROR(groups_.SumOverTensor(row_sums_));
  return device_.LossSum(row_max_, row_sum_, target_logit_);
}

absl::Status Head::Backward(View targets, double scale, View dx) {
  device_.SoftmaxGradient(row_max_, row_sum_, targets, first_id_, scale, logits_);
  device_.MatMul(logits_, Transpose::kYes, norm_out_, Transpose::kNo, 1, weight_gradient_);
  device_.MatMul(logits_, Transpose::kNo, weight_, Transpose::kNo, 0, dnorm_);
  RETURN_IF_ERROR(groups_.SumOverTensor(dnorm_));
  device_.Zero(dx);
  BackwardNorm(norm_, dnorm_, x_, norm_saved_, dx, device_);
  return absl::OkStatus();
}

}  // namespace weft
