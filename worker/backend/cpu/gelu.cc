// GELU in its tanh form: x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3). Computed as
// x / (1 + e^(-2u)), the same function, which needs one exponential and keeps its digits for
// negative x, where 1 + tanh u cancels.
#include "worker/backend/cpu/exp.h"
#include "worker/backend/cpu/kernels.h"

namespace weft {
namespace {

constexpr float kTwiceRoot = 1.59576912F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

}  // namespace

WEFT_CLONES void GeluForward(const float* x, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    y[i] = v / (1.0F + Exp(-kTwiceRoot * (v + kCubic * v * v * v)));
  }
}

// With s = 1 / (1 + e^(-2u)): dy/dx = s + x s (1 - s) 2u', and 1 - s = e^(-2u) s.
WEFT_CLONES void GeluBackward(const float* dy, const float* x, float* dx, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float v = x[i];
    const float exponent = -kTwiceRoot * (v + kCubic * v * v * v);
    const float e = Exp(exponent);
    const float s = 1.0F / (1.0F + e);
    const float rest = exponent > 80.0F ? 0.0F : e * s * s;  // s (1 - s); no infinity times zero
    const float slope = kTwiceRoot * (1.0F + 3.0F * kCubic * v * v);
    dx[i] = dy[i] * (s + v * rest * slope);
  }
}

// SwiGLU: gate * s * up with s = 1 / (1 + e^(-gate)).
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
