#include <algorithm>
#include <array>

#include "worker/backend/cpu/kernels.h"

namespace weft {
namespace {

// Columns that one pass over the rows sums, so that the sums stay in the first-level cache.
constexpr int64_t kColumnBlock = 256;

WEFT_CLONES void SumColumnBlock(const float* x, float* sums, int64_t rows, int64_t stride,
                                int64_t count) {
  std::array<double, kColumnBlock> total = {};
  double* const accumulator = total.data();
  for (int64_t row = 0; row < rows; ++row) {
    const float* const x_row = x + row * stride;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) accumulator[i] += static_cast<double>(x_row[i]);
  }
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = static_cast<float>(static_cast<double>(sums[i]) + accumulator[i]);
  }
}

}  // namespace

WEFT_CLONES void AddInto(const float* x, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] += x[i];
}

WEFT_CLONES void ScaleBy(float factor, float* x, int64_t count) {
  for (int64_t i = 0; i < count; ++i) x[i] *= factor;
}

WEFT_CLONES void AddBiasRows(const float* bias, float* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    float* const x_row = x + row * cols;
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) x_row[i] += bias[i];
  }
}

void SumRowsInto(const float* x, float* sums, int64_t rows, int64_t cols) {
  for (int64_t col = 0; col < cols; col += kColumnBlock) {
    SumColumnBlock(x + col, sums + col, rows, cols, std::min(kColumnBlock, cols - col));
  }
}

WEFT_CLONES double SumOfSquaresOf(const float* x, int64_t count) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(x[i]);
    total += value * value;
  }
  return total;
}

// By lanes in the open: the compiler makes no vectors of a plain maximum, which would have to keep
// the order of zeros and of what is not a number.
WEFT_CLONES float MaximumOf(const float* x, int64_t count) {
  constexpr int64_t kLanes = 32;
  float lanes[kLanes];
  for (float& lane : lanes) lane = -__builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] = x[i + j] > lanes[j] ? x[i + j] : lanes[j];
  }
  float highest = -__builtin_inff();
  for (; i < count; ++i) highest = std::max(highest, x[i]);
  for (const float lane : lanes) highest = std::max(highest, lane);
  return highest;
}

WEFT_CLONES void RotateRows(const float* table, int64_t seq_len, int64_t head_dim, float direction,
                            float* x, int64_t rows, int64_t cols) {
  const int64_t half = head_dim / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const cosines = table + row % seq_len * head_dim;
    const float* const sines = cosines + half;
    for (int64_t head = 0; head < cols; head += head_dim) {
      float* const first = x + row * cols + head;
      float* const second = first + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float sine = direction * sines[i];
        const float a = first[i];
        const float b = second[i];
        first[i] = a * cosines[i] - b * sine;
        second[i] = b * cosines[i] + a * sine;
      }
    }
  }
}

}  // namespace weft
