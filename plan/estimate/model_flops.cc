#include "plan/estimate/model_flops.h"

#include "plan/block/flops.h"
#include "plan/errors.h"
#include "plan/spec/model.h"

namespace weft {

double ModelFlopsPerToken(const Question& question) {
  const ModelShape& model = question.model;
  const auto blocks = static_cast<double>(model.num_blocks);
  const auto dense = static_cast<double>(model.num_dense_blocks);
  const auto query =
      static_cast<double>(model.num_heads * (model.head_dim + model.value_dim())) / 2;
  const int64_t last = model.num_blocks - 1;
  double forward = (blocks - dense) * BlockForwardFlopsPerToken(model, last, /*seq_len=*/0) +
                   HeadForwardFlopsPerToken(model);
  if (dense > 0) forward += dense * BlockForwardFlopsPerToken(model, 0, /*seq_len=*/0);
  const double passes = question.adapters ? 2 : 3;  // the weights' gradients are a third
  return passes * forward + 24 * blocks * query * MeanVisibleKeys(model, question.batch.seq_len);
}

ModelFlopRate ModelFlopRateOf(const Question& question, double tokens_per_s, int workers) {
  CHECK(workers >= 1);
  const Precision peak = question.numerics.precision == Precision::kFp8
                             ? Precision::kBf16
                             : question.numerics.precision;
  return {.flops_per_s = ModelFlopsPerToken(question) * tokens_per_s / workers,
          .peak_flops_per_s = question.cluster.device.peak_flops_per_s.of(peak)};
}

}  // namespace weft
