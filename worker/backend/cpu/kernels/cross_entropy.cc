// Softmax cross-entropy over a range of the vocabulary (Shoeybi et al., arXiv:1909.08053, section
// 3: only row maxima, sums and target logits cross the tensor group, never the logits).
#include <cmath>

#include "worker/backend/cpu/kernels/exp.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {

template <typename T>
void RowMaxOf(const T* logits, float* row_max, int64_t rows, RowShape shape) {
  for (int64_t row = 0; row < rows; ++row) {
    row_max[row] = MaximumOf(logits + row * shape.stride, shape.cols);
  }
}

template <typename T>
WEFT_CLONES void RowSumExpOf(const T* logits, const float* row_max, const int32_t* targets,
                             int64_t first_id, const LossTerms& loss, float* row_sum,
                             float* target_logit, int64_t rows, RowShape shape) {
  const int64_t cols = shape.cols;
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x = logits + row * shape.stride;
    const float highest = row_max[row];
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < cols; ++i) total += static_cast<double>(Exp(Widen(x[i]) - highest));
    row_sum[row] = static_cast<float>(total);
    const int64_t target = targets[row] - first_id;
    target_logit[row] = target >= 0 && target < cols ? Widen(x[target]) : 0.0F;
    if (loss.smoothing == 0) continue;
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < cols; ++i) sum += static_cast<double>(Widen(x[i]));
    target_logit[row] =
        static_cast<float>((1 - loss.smoothing) * static_cast<double>(target_logit[row]) +
                           loss.smoothing_of_each() * sum);
  }
}

// A RowGradient is that of a row: of each logit exp(x - highest) * factor - of_each, and the
// target's own.
struct RowGradient {
  float highest;
  float factor;
  float of_each;
  float of_target;

  // `target_logit`: 0 where the target is another rank's; that row's own is of no use then.
  RowGradient(float row_max, float row_sum, float target_logit, const LossTerms& loss)
      : highest(row_max), of_each(static_cast<float>(loss.smoothing_of_each() * loss.scale)) {
    const auto sum = static_cast<double>(row_sum);
    const double log_sum = std::log(sum) + static_cast<double>(row_max);
    const double slope = loss.z_weight == 0 ? 1 : 1 + 2 * loss.z_weight * log_sum;
    factor = static_cast<float>(loss.scale * slope / sum);
    // p - 1 for the target is taken in double: when p is near 1 it would keep few digits.
    const double p = std::exp(static_cast<double>(target_logit - highest)) / sum;
    const double target_share = 1 - loss.smoothing + loss.smoothing_of_each();
    of_target = static_cast<float>((p * slope - target_share) * loss.scale);
  }
};

template <typename T>
WEFT_CLONES void SoftmaxGradientOf(const float* row_max, const float* row_sum,
                                   const int32_t* targets, int64_t first_id, const LossTerms& loss,
                                   T* logits, int64_t rows, RowShape shape) {
  const int64_t cols = shape.cols;
  for (int64_t row = 0; row < rows; ++row) {
    T* const x = logits + row * shape.stride;
    const int64_t target = targets[row] - first_id;
    const bool here = target >= 0 && target < cols;
    const RowGradient g(row_max[row], row_sum[row], here ? Widen(x[target]) : 0.0F, loss);
    if (loss.cap > 0) {
      // y = cap tanh(x / cap): dy/dx = 1 - (y / cap)^2.
      const auto inverse = static_cast<float>(1.0 / loss.cap);
      const float share = here ? Widen(x[target]) * inverse : 0.0F;
      for (int64_t i = 0; i < cols; ++i) {
        const float y = Widen(x[i]) * inverse;
        Narrow((Exp(Widen(x[i]) - g.highest) * g.factor - g.of_each) * (1.0F - y * y), x + i);
      }
      if (here) Narrow(g.of_target * (1.0F - share * share), x + target);
      continue;
    }
    for (int64_t i = 0; i < cols; ++i)
      Narrow(Exp(Widen(x[i]) - g.highest) * g.factor - g.of_each, x + i);
    if (here) Narrow(g.of_target, x + target);
  }
}

#define WEFT_INSTANTIATE(T)                                                                       \
  template void RowMaxOf<T>(const T*, float*, int64_t, RowShape);                                 \
  template void RowSumExpOf<T>(const T*, const float*, const int32_t*, int64_t, const LossTerms&, \
                               float*, float*, int64_t, RowShape);                                \
  template void SoftmaxGradientOf<T>(const float*, const float*, const int32_t*, int64_t,         \
                                     const LossTerms&, T*, int64_t, RowShape);
WEFT_FOR_EACH_ELEMENT(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

double LossSumOf(const float* row_max, const float* row_sum, const float* target_logit,
                 double z_weight, int64_t rows) {
  double total = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const double log_sum =
        std::log(static_cast<double>(row_sum[row])) + static_cast<double>(row_max[row]);
    total += log_sum - static_cast<double>(target_logit[row]);
    if (z_weight != 0) total += z_weight * log_sum * log_sum;
  }
  return total;
}

}  // namespace weft
