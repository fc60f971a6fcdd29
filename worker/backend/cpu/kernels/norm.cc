// Layer normalisation (Ba et al., arXiv:1607.06450). Statistics in double: the variance of rows
// with a large mean would otherwise lose digits that the gradients need.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kColumnBlock = 256;

template <typename T>
WEFT_CLONES void WeightGradientBlock(const T* dy, const T* x, const float* mean, const float* rstd,
                                     float* dweight, float* dbias, int64_t rows, int64_t stride,
                                     int64_t count) {
  std::array<double, kColumnBlock> weight_total = {};
  std::array<double, kColumnBlock> bias_total = {};
  double* const weight_sums = weight_total.data();
  double* const bias_sums = bias_total.data();
  for (int64_t row = 0; row < rows; ++row) {
    const T* const dy_row = dy + row * stride;
    const T* const x_row = x + row * stride;
    const float row_mean = mean[row];
    const float row_rstd = rstd[row];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float normal = (Widen(x_row[i]) - row_mean) * row_rstd;
      weight_sums[i] += static_cast<double>(Widen(dy_row[i]) * normal);
      bias_sums[i] += static_cast<double>(Widen(dy_row[i]));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    dweight[i] = static_cast<float>(static_cast<double>(dweight[i]) + weight_sums[i]);
    if (dbias == nullptr) continue;
    dbias[i] = static_cast<float>(static_cast<double>(dbias[i]) + bias_sums[i]);
  }
}

}  // namespace

template <typename T>
WEFT_CLONES void LayerNormRows(const T* x, const T* weight, const T* bias,
                               const NormConstants& constants, T* y, float* mean, float* rstd,
                               int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  const auto offset = static_cast<float>(constants.offset);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x_row = x + row * cols;
    T* const y_row = y + row * cols;
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < cols; ++i) total += static_cast<double>(Widen(x_row[i]));
    const double exact_mean = total * inverse_cols;
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < cols; ++i) {
      const double centered = static_cast<double>(Widen(x_row[i])) - exact_mean;
      squares += centered * centered;
    }
    const auto row_mean = static_cast<float>(exact_mean);
    const auto row_rstd =
        static_cast<float>(1.0 / std::sqrt(squares * inverse_cols + constants.eps));
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      const float normal = (Widen(x_row[i]) - row_mean) * row_rstd;
      const float of_bias = bias == nullptr ? 0.0F : Widen(bias[i]);
      Narrow(normal * (offset + Widen(weight[i])) + of_bias, y_row + i);
    }
    mean[row] = row_mean;
    rstd[row] = row_rstd;
  }
}

// With g = dy * (offset + weight) and n the normalised row: dx += rstd * (g - mean(g) - n * mean(g
// * n)).
template <typename T>
WEFT_CLONES void LayerNormInputGradient(const T* dy, const T* x, const T* weight, float offset,
                                        const float* mean, const float* rstd, T* dx, int64_t rows,
                                        int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const dy_row = dy + row * cols;
    const T* const x_row = x + row * cols;
    T* const dx_row = dx + row * cols;
    const float row_mean = mean[row];
    const float row_rstd = rstd[row];
    double sum = 0;
    double sum_normal = 0;
#pragma omp simd reduction(+ : sum, sum_normal)
    for (int64_t i = 0; i < cols; ++i) {
      const float g = Widen(dy_row[i]) * (offset + Widen(weight[i]));
      const float normal = (Widen(x_row[i]) - row_mean) * row_rstd;
      sum += static_cast<double>(g);
      sum_normal += static_cast<double>(g * normal);
    }
    const auto mean_g = static_cast<float>(sum * inverse_cols);
    const auto mean_gn = static_cast<float>(sum_normal * inverse_cols);
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      const float g = Widen(dy_row[i]) * (offset + Widen(weight[i]));
      const float normal = (Widen(x_row[i]) - row_mean) * row_rstd;
      Narrow(Widen(dx_row[i]) + row_rstd * (g - mean_g - normal * mean_gn), dx_row + i);
    }
  }
}

template <typename T>
void LayerNormWeightGradient(const T* dy, const T* x, int64_t stride, const float* mean,
                             const float* rstd, float* dweight, float* dbias, int64_t rows,
                             int64_t cols) {
  for (int64_t col = 0; col < cols; col += kColumnBlock) {
    WeightGradientBlock(dy + col, x + col, mean, rstd, dweight + col,
                        dbias == nullptr ? nullptr : dbias + col, rows, stride,
                        std::min(kColumnBlock, cols - col));
  }
}

#define WEFT_INSTANTIATE(T)                                                                      \
  template void LayerNormRows<T>(const T*, const T*, const T*, const NormConstants&, T*, float*, \
                                 float*, int64_t, int64_t);                                      \
  template void LayerNormInputGradient<T>(const T*, const T*, const T*, float, const float*,     \
                                          const float*, T*, int64_t, int64_t);                   \
  template void LayerNormWeightGradient<T>(const T*, const T*, int64_t, const float*,            \
                                           const float*, float*, float*, int64_t, int64_t);
WEFT_FOR_EACH_ELEMENT(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

}  // namespace weft
