// Stands in for worker/backend/cuda/attention/mma.h where kernels run on the CPU (threads.h):
// gathers the whole matrices from the lanes' fragments and multiplies them in plain loops.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

namespace weft {

struct FragmentA {
  uint32_t at[4];
};
struct FragmentB {
  uint32_t at[2];
};
struct FragmentC {
  float at[4];
};

// Element `at` of the row that lane `lane` has named.
inline uint32_t ElementOf(const uint64_t (&rows)[32], int lane, int at) {
  uint16_t element = 0;
  std::memcpy(&element, reinterpret_cast<const uint16_t*>(rows[lane]) + at, sizeof(element));
  return element;
}
inline void LoadMatrices(const void* row, uint32_t (&to)[4]) {
  uint64_t rows[32];
  emulation::ExchangeAll(reinterpret_cast<uint64_t>(row), rows);
  const int lane = emulation::Lane();
  for (int i = 0; i < 4; ++i) {
    const int from = 8 * i + lane / 4;
    to[i] = ElementOf(rows, from, lane % 4 * 2) | ElementOf(rows, from, lane % 4 * 2 + 1) << 16;
  }
}
inline void LoadTransposed(const void* row, uint32_t (&to)[4]) {
  uint64_t rows[32];
  emulation::ExchangeAll(reinterpret_cast<uint64_t>(row), rows);
  const int lane = emulation::Lane();
  for (int i = 0; i < 4; ++i) {
    const int from = 8 * i + lane % 4 * 2;
    to[i] = ElementOf(rows, from, lane / 4) | ElementOf(rows, from + 1, lane / 4) << 16;
  }
}

inline float HalfOf(uint32_t pair, int which, __nv_bfloat16 x) {
  x.bits = static_cast<uint16_t>(pair >> 16 * which);
  return __bfloat162float(x);
}
inline float HalfOf(uint32_t pair, int which, __half x) {
  x.bits = static_cast<uint16_t>(pair >> 16 * which);
  return __half2float(x);
}

template <typename T>
void MultiplyAdd(const FragmentA& a, const FragmentB& b, FragmentC* c) {
  uint64_t rows[2][32];  // a: registers 0, 1, then 2, 3
  uint64_t columns[32];
  for (int half = 0; half < 2; ++half) {
    uint64_t bits = 0;
    std::memcpy(&bits, a.at + 2 * half, sizeof(bits));
    emulation::ExchangeAll(bits, rows[half]);
  }
  uint64_t bits = 0;
  std::memcpy(&bits, b.at, sizeof(bits));
  emulation::ExchangeAll(bits, columns);
  const int lane = emulation::Lane();
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2);
    const int column = lane % 4 * 2 + i % 2;
    float sum = c->at[i];
    for (int k = 0; k < 16; ++k) {
      // Lane (row % 8) * 4 + (k % 8) / 2 holds a[row][k]; lane column * 4 + (k % 8) / 2,
      // b[k][column].
      const uint64_t a_pairs = rows[k / 8][row % 8 * 4 + k % 8 / 2];
      const uint64_t b_pairs = columns[column * 4 + k % 8 / 2];
      const auto a_pair = static_cast<uint32_t>(a_pairs >> 32 * (row / 8));
      const auto b_pair = static_cast<uint32_t>(b_pairs >> 32 * (k / 8));
      sum += HalfOf(a_pair, k % 2, T{}) * HalfOf(b_pair, k % 2, T{});
    }
    c->at[i] = sum;
  }
}

}  // namespace weft
