// Layer normalisation (Ba et al., arXiv:1607.06450). Statistics in double: the variance of rows
// with a large mean would otherwise lose digits that the gradients need.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/backend/cpu/kernels.h"

namespace weft {
namespace {

constexpr int64_t kColumnBlock = 256;

WEFT_CLONES void WeightGradientBlock(const float* dy, const float* x, const float* mean,
                                     const float* rstd, float* dweight, float* dbias, int64_t rows,
                                     int64_t stride, int64_t count) {
  std::array<double, kColumnBlock> weight_total = {};
  std::array<double, kColumnBlock> bias_total = {};
  double* const weight_sums = weight_total.data();
  double* const bias_sums = bias_total.data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* const dy_row = dy + row * stride;
    const float* const x_row = x + row * stride;
    const float row_mean = mean[row];
    const float row_rstd = rstd[row];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      const float normal = (x_row[i] - row_mean) * row_rstd;
      weight_sums[i] += static_cast<double>(dy_row[i] * normal);
      bias_sums[i] += static_cast<double>(dy_row[i]);
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    dweight[i] = static_cast<float>(static_cast<double>(dweight[i]) + weight_sums[i]);
    dbias[i] = static_cast<float>(static_cast<double>(dbias[i]) + bias_sums[i]);
  }
}

}  // namespace

WEFT_CLONES void LayerNormRows(const float* x, const float* weight, const float* bias, double eps,
                               float* y, float* mean, float* rstd, int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const x_row = x + row * cols;
    float* const y_row = y + row * cols;
    double total = 0;
#pragma omp simd reduction(+ : total)
    for (int64_t i = 0; i < cols; ++i) total += static_cast<double>(x_row[i]);
    const double exact_mean = total * inverse_cols;
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < cols; ++i) {
      const double centered = static_cast<double>(x_row[i]) - exact_mean;
      squares += centered * centered;
    }
    const auto row_mean = static_cast<float>(exact_mean);
    const auto row_rstd = static_cast<float>(1.0 / std::sqrt(squares * inverse_cols + eps));
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      y_row[i] = (x_row[i] - row_mean) * row_rstd * weight[i] + bias[i];
    }
    mean[row] = row_mean;
    rstd[row] = row_rstd;
  }
}

// With g = dy * weight and n the normalised row: dx += rstd * (g - mean(g) - n * mean(g * n)).
WEFT_CLONES void LayerNormInputGradient(const float* dy, const float* x, const float* weight,
                                        const float* mean, const float* rstd, float* dx,
                                        int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const dy_row = dy + row * cols;
    const float* const x_row = x + row * cols;
    float* const dx_row = dx + row * cols;
    const float row_mean = mean[row];
    const float row_rstd = rstd[row];
    double sum = 0;
    double sum_normal = 0;
#pragma omp simd reduction(+ : sum, sum_normal)
    for (int64_t i = 0; i < cols; ++i) {
      const float g = dy_row[i] * weight[i];
      const float normal = (x_row[i] - row_mean) * row_rstd;
      sum += static_cast<double>(g);
      sum_normal += static_cast<double>(g * normal);
    }
    const auto mean_g = static_cast<float>(sum * inverse_cols);
    const auto mean_gn = static_cast<float>(sum_normal * inverse_cols);
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      const float g = dy_row[i] * weight[i];
      const float normal = (x_row[i] - row_mean) * row_rstd;
      dx_row[i] += row_rstd * (g - mean_g - normal * mean_gn);
    }
  }
}

void LayerNormWeightGradient(const float* dy, const float* x, const float* mean, const float* rstd,
                             float* dweight, float* dbias, int64_t rows, int64_t cols) {
  for (int64_t col = 0; col < cols; col += kColumnBlock) {
    WeightGradientBlock(dy + col, x + col, mean, rstd, dweight + col, dbias + col, rows, cols,
                        std::min(kColumnBlock, cols - col));
  }
}

}  // namespace weft
