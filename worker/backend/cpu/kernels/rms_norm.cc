// Root-mean-square normalisation (Zhang & Sennrich, arXiv:1910.07467); sums in double, as norm.cc.
#include <algorithm>
#include <array>
#include <cmath>

#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {
namespace {

constexpr int64_t kColumnBlock = 256;

template <typename T>
WEFT_CLONES void WeightGradientBlock(const T* dy, const T* x, const float* rstd, float* dweight,
                                     int64_t rows, int64_t stride, int64_t count) {
  std::array<double, kColumnBlock> total = {};
  double* const sums = total.data();
  for (int64_t row = 0; row < rows; ++row) {
    const T* const dy_row = dy + row * stride;
    const T* const x_row = x + row * stride;
    const float row_rstd = rstd[row];
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) {
      sums[i] += static_cast<double>(Widen(dy_row[i]) * (Widen(x_row[i]) * row_rstd));
    }
  }
  for (int64_t i = 0; i < count; ++i) {
    dweight[i] = static_cast<float>(static_cast<double>(dweight[i]) + sums[i]);
  }
}

}  // namespace

template <typename T>
WEFT_CLONES void RmsNormRows(const T* x, const T* weight, const NormConstants& constants, T* y,
                             float* rstd, int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  const auto offset = static_cast<float>(constants.offset);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x_row = x + row * cols;
    T* const y_row = y + row * cols;
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < cols; ++i) {
      const double value = static_cast<double>(Widen(x_row[i]));
      squares += value * value;
    }
    const auto row_rstd =
        static_cast<float>(1.0 / std::sqrt(squares * inverse_cols + constants.eps));
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      Narrow(Widen(x_row[i]) * row_rstd * (offset + Widen(weight[i])), y_row + i);
    }
    rstd[row] = row_rstd;
  }
}

// With g = dy * (offset + weight) and n = x * rstd: dx += rstd * (g - n * mean(g * n)).
template <typename T>
WEFT_CLONES void RmsNormInputGradient(const T* dy, const T* x, const T* weight, float offset,
                                      const float* rstd, T* dx, int64_t rows, int64_t cols) {
  const double inverse_cols = 1.0 / static_cast<double>(cols);
  for (int64_t row = 0; row < rows; ++row) {
    const T* const dy_row = dy + row * cols;
    const T* const x_row = x + row * cols;
    T* const dx_row = dx + row * cols;
    const float row_rstd = rstd[row];
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < cols; ++i) {
      const float g = Widen(dy_row[i]) * (offset + Widen(weight[i]));
      sum += static_cast<double>(g * (Widen(x_row[i]) * row_rstd));
    }
    const auto mean_gn = static_cast<float>(sum * inverse_cols);
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) {
      const float g = Widen(dy_row[i]) * (offset + Widen(weight[i]));
      Narrow(Widen(dx_row[i]) + row_rstd * (g - Widen(x_row[i]) * row_rstd * mean_gn), dx_row + i);
    }
  }
}

template <typename T>
void RmsNormWeightGradient(const T* dy, const T* x, int64_t stride, const float* rstd,
                           float* dweight, int64_t rows, int64_t cols) {
  for (int64_t col = 0; col < cols; col += kColumnBlock) {
    WeightGradientBlock(dy + col, x + col, rstd, dweight + col, rows, stride,
                        std::min(kColumnBlock, cols - col));
  }
}

#define WEFT_INSTANTIATE(T)                                                                    \
  template void RmsNormRows<T>(const T*, const T*, const NormConstants&, T*, float*, int64_t,  \
                               int64_t);                                                       \
  template void RmsNormInputGradient<T>(const T*, const T*, const T*, float, const float*, T*, \
                                        int64_t, int64_t);                                     \
  template void RmsNormWeightGradient<T>(const T*, const T*, int64_t, const float*, float*,    \
                                         int64_t, int64_t);
WEFT_FOR_EACH_ELEMENT(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

}  // namespace weft
