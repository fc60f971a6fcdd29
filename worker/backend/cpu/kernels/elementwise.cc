#include <algorithm>
#include <array>
#include <cstring>

#include "worker/backend/cpu/kernels/exp.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {
namespace {

// Turns pairs of neighbours.
template <typename T>
WEFT_CLONES void RotateNeighbours(const float* cosines, const float* sines, float direction, T* x,
                                  int64_t pairs) {
#pragma omp simd
  for (int64_t i = 0; i < pairs; ++i) {
    const float sine = direction * sines[i];
    const float a = Widen(x[2 * i]);
    const float b = Widen(x[2 * i + 1]);
    Narrow(a * cosines[i] - b * sine, x + 2 * i);
    Narrow(b * cosines[i] + a * sine, x + 2 * i + 1);
  }
}

// Columns that one pass over the rows sums, so that the sums stay in the first-level cache.
constexpr int64_t kColumnBlock = 256;

template <typename T>
WEFT_CLONES void SumColumnBlock(const T* x, float* sums, int64_t rows, int64_t stride,
                                int64_t count) {
  std::array<double, kColumnBlock> total = {};
  double* const accumulator = total.data();
  for (int64_t row = 0; row < rows; ++row) {
    const T* const x_row = x + row * stride;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) accumulator[i] += static_cast<double>(Widen(x_row[i]));
  }
  for (int64_t i = 0; i < count; ++i) {
    sums[i] = static_cast<float>(static_cast<double>(sums[i]) + accumulator[i]);
  }
}

}  // namespace

template <typename From, typename To>
WEFT_CLONES void ConvertInto(const From* from, To* to, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) Narrow(Widen(from[i]), to + i);
}

template <typename T, typename Sum>
WEFT_CLONES void AddInto(const T* x, Sum* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) Narrow(Widen(y[i]) + Widen(x[i]), y + i);
}

template <typename T>
WEFT_CLONES void ScaleBy(float factor, T* x, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) Narrow(Widen(x[i]) * factor, x + i);
}

template <typename T>
WEFT_CLONES void AddBiasRows(const T* bias, T* x, int64_t rows, int64_t cols) {
  for (int64_t row = 0; row < rows; ++row) {
    T* const x_row = x + row * cols;
#pragma omp simd
    for (int64_t i = 0; i < cols; ++i) Narrow(Widen(x_row[i]) + Widen(bias[i]), x_row + i);
  }
}

template <typename T>
void SumRowsInto(const T* x, int64_t stride, float* sums, int64_t rows, int64_t cols) {
  for (int64_t col = 0; col < cols; col += kColumnBlock) {
    SumColumnBlock(x + col, sums + col, rows, stride, std::min(kColumnBlock, cols - col));
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
template <typename T>
WEFT_CLONES float MaximumOf(const T* x, int64_t count) {
  constexpr int64_t kLanes = 32;
  float lanes[kLanes];
  for (float& lane : lanes) lane = -__builtin_inff();
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
#pragma omp simd
    for (int64_t j = 0; j < kLanes; ++j) {
      const float value = Widen(x[i + j]);
      lanes[j] = value > lanes[j] ? value : lanes[j];
    }
  }
  float highest = -__builtin_inff();
  for (; i < count; ++i) highest = std::max(highest, Widen(x[i]));
  for (const float lane : lanes) highest = std::max(highest, lane);
  return highest;
}

template <typename T>
WEFT_CLONES void RotateRows(const float* table, const RotateShape& shape, T* x, int64_t stride,
                            int64_t rows, int64_t cols) {
  const int64_t half = shape.width / 2;
  for (int64_t row = 0; row < rows; ++row) {
    const float* const cosines = table + row % shape.seq_len * shape.width;
    const float* const sines = cosines + half;
    for (int64_t head = 0; head < cols; head += shape.head_dim) {
      T* const first = x + row * stride + head;
      if (shape.are_interleaved) {
        RotateNeighbours(cosines, sines, shape.direction, first, half);
        continue;
      }
      T* const second = first + half;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float sine = shape.direction * sines[i];
        const float a = Widen(first[i]);
        const float b = Widen(second[i]);
        Narrow(a * cosines[i] - b * sine, first + i);
        Narrow(b * cosines[i] + a * sine, second + i);
      }
    }
  }
}

template <typename T>
WEFT_CLONES void CapInPlace(float cap, T* x, int64_t count) {
  const float inverse = 1.0F / cap;
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) Narrow(cap * Tanh(Widen(x[i]) * inverse), x + i);
}

#define WEFT_INSTANTIATE(T)                                                  \
  template void CapInPlace<T>(float, T*, int64_t);                           \
  template void AddInto<T, T>(const T*, T*, int64_t);                        \
  template void ScaleBy<T>(float, T*, int64_t);                              \
  template void AddBiasRows<T>(const T*, T*, int64_t, int64_t);              \
  template void SumRowsInto<T>(const T*, int64_t, float*, int64_t, int64_t); \
  template float MaximumOf<T>(const T*, int64_t);                            \
  template void RotateRows<T>(const float*, const RotateShape&, T*, int64_t, int64_t, int64_t);
WEFT_FOR_EACH_ELEMENT(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

#define WEFT_INSTANTIATE(T)                                       \
  template void AddInto<T, float>(const T*, float*, int64_t);     \
  template void ConvertInto<T, float>(const T*, float*, int64_t); \
  template void ConvertInto<float, T>(const float*, T*, int64_t);
WEFT_INSTANTIATE(Bf16)
WEFT_INSTANTIATE(Fp16)
#undef WEFT_INSTANTIATE

}  // namespace weft
