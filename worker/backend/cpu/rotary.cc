#include "worker/backend/cpu/kernels.h"

namespace weft {

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
