// SwiGLU: gate * s * up with s = 1 / (1 + e^(-gate)).
#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/kernels.h"

namespace weft {

WEFT_CLONES void SwiGluForward(const float* gate, const float* up, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = gate[i] / (1.0F + Exp(-gate[i])) * up[i];
}

// d(gate s) / d gate = s (1 + gate (1 - s)), and 1 - s = e^(-gate) s. The exponent is bounded where
// s is nothing beside 1, so that no infinity meets a zero.
WEFT_CLONES void SwiGluBackward(const float* dy, const float* gate, const float* up, float* dgate,
                                float* dup, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = gate[i];
    const float u = up[i];
    const float d = dy[i];
    const float e = Exp(-g > 80.0F ? 80.0F : -g);
    const float s = 1.0F / (1.0F + e);
    dgate[i] = d * u * s * (1.0F + g * (e * s));
    dup[i] = d * g * s;
  }
}

}  // namespace weft
