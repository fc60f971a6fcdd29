// Root-mean-square normalisation (Zhang & Sennrich, arXiv:1910.07467); sums in double, as norm.cc.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/backend/cpu/kernels.h"

namespace weft {
namespace {

constexpr int64_t kColumnBlock = 256;

WEFT_CLONES void WeightGradientBlock(const float* dy, const float* x, const float* rstd,
                                     float* dweight, int64_t rows, int64_t stride, int64_t count) {
  std::array<double, kColumnBlock> total = {};
  double* const sums = total.data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* const dy_row = dy + row * stride;
    const float* const x_row = x + row * stride;
    const float row_rstd = rstd[row];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += static_cast<double>(dy_row[i] * (x_row[i] * row_rstd));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    dweight[i] = static_cast<float>(static_cast<double>(dweight[i]) + sums[i]);
  }
}

}  // namespace

WEFT_CLONES void RmsNormRows(const float* x, const float* weight, double eps, float* y, float* rstd,
                             int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const x_row = x + row * cols;
    float* const y_row = y + row * cols;
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < cols; ++i) {
      const double value = static_cast<double>(x_row[i]);
      squares += value * value;
    }
    const auto row_rstd = static_cast<float>(1.0 / std::sqrt(squares * inverse_cols + eps));
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) y_row[i] = x_row[i] * row_rstd * weight[i];
    rstd[row] = row_rstd;
  }
}

// With g = dy * weight and n = x * rstd: dx += rstd * (g - n * mean(g * n)).
WEFT_CLONES void RmsNormInputGradient(const float* dy, const float* x, const float* weight,
                                      const float* rstd, float* dx, int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row) {
    const float* const dy_row = dy + row * cols;
    const float* const x_row = x + row * cols;
    float* const dx_row = dx + row * cols;
    const float row_rstd = rstd[row];
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < cols; ++i) {
      sum += static_cast<double>(dy_row[i] * weight[i] * (x_row[i] * row_rstd));
    }
    const auto mean_gn = static_cast<float>(sum * inverse_cols);
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      dx_row[i] += row_rstd * (dy_row[i] * weight[i] - x_row[i] * row_rstd * mean_gn);
    }
  }
}

void RmsNormWeightGradient(const float* dy, const float* x, const float* rstd, float* dweight,
                           int64_t rows, int64_t cols) {
  for (int64_t col = 0; col < cols; col += kColumnBlock) {
    WeightGradientBlock(dy + col, x + col, rstd, dweight + col, rows, cols,
                        std::min(kColumnBlock, cols - col));
  }
}

}  // namespace weft
