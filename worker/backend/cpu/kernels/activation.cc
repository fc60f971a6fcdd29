// Activations. GELU in its tanh form: x (1 + tanh u) / 2 with u = sqrt(2 / pi) (x + 0.044715 x^3).
// Computed as x / (1 + e^(-2u)), the same function, which needs one exponential and keeps its
// digits for negative x, where 1 + tanh u cancels.
#include <cmath>

#include "worker/backend/cpu/kernels/exp.h"
#include "worker/backend/cpu/kernels/kernels.h"

namespace weft {
namespace {

constexpr float kTwiceRoot = 1.59576912F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;
constexpr float kRootHalf = 0.707106781F;
constexpr float kDensityAtZero = 0.398942280F;  // of a normal distribution: 1 / sqrt(2 pi)

}  // namespace

template <typename T>
WEFT_CLONES void GeluForward(const T* x, T* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float v = Widen(x[i]);
    Narrow(v / (1.0F + Exp(-kTwiceRoot * (v + kCubic * v * v * v))), y + i);
  }
}

// With s = 1 / (1 + e^(-2u)): dy/dx = s + x s (1 - s) 2u', and 1 - s = e^(-2u) s.
template <typename T>
WEFT_CLONES void GeluBackward(const T* dy, const T* x, T* dx, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float v = Widen(x[i]);
    const float exponent = -kTwiceRoot * (v + kCubic * v * v * v);
    const float e = Exp(exponent);
    const float s = 1.0F / (1.0F + e);
    const float rest = exponent > 80.0F ? 0.0F : e * s * s;  // s (1 - s); no infinity times zero
    const float slope = kTwiceRoot * (1.0F + 3.0F * kCubic * v * v);
    Narrow(Widen(dy[i]) * (s + v * rest * slope), dx + i);
  }
}

template <typename T>
WEFT_CLONES void SquaredReluForward(const T* x, T* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float v = Widen(x[i]);
    Narrow(v > 0.0F ? v * v : v * 0.0F, y + i);  // not a number stays one
  }
}

template <typename T>
WEFT_CLONES void SquaredReluBackward(const T* dy, const T* x, T* dx, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float v = Widen(x[i]);
    Narrow(Widen(dy[i]) * (v > 0.0F ? 2.0F * v : v * 0.0F), dx + i);
  }
}

// x Phi(x): the share of a normal distribution below x.
template <typename T>
void ErfGeluForward(const T* x, T* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float v = Widen(x[i]);
    Narrow(0.5F * v * std::erfc(-kRootHalf * v), y + i);
  }
}

// Phi(x) + x phi(x)
template <typename T>
void ErfGeluBackward(const T* dy, const T* x, T* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float v = Widen(x[i]);
    const float density = kDensityAtZero * std::exp(-0.5F * v * v);
    const float bend = density == 0.0F ? 0.0F : v * density;  // no infinity times zero
    Narrow(Widen(dy[i]) * (0.5F * std::erfc(-kRootHalf * v) + bend), dx + i);
  }
}

// SwiGLU: gate * s * up with s = 1 / (1 + e^(-gate)).
template <typename T>
WEFT_CLONES void SwiGluForward(const T* gate, const T* up, T* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = Widen(gate[i]);
    Narrow(g / (1.0F + Exp(-g)) * Widen(up[i]), y + i);
  }
}

// d(gate s) / d gate = s (1 + gate (1 - s)), and 1 - s = e^(-gate) s. The exponent is bounded where
// s is nothing beside 1, so that no infinity meets a zero.
template <typename T>
WEFT_CLONES void SwiGluBackward(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                                int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = Widen(gate[i]);
    const float u = Widen(up[i]);
    const float d = Widen(dy[i]);
    const float e = Exp(-g > 80.0F ? 80.0F : -g);
    const float s = 1.0F / (1.0F + e);
    Narrow(d * u * s * (1.0F + g * (e * s)), dgate + i);
    Narrow(d * g * s, dup + i);
  }
}

// GEGLU: gelu(gate) * up.
template <typename T>
WEFT_CLONES void GeGluForward(const T* gate, const T* up, T* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = Widen(gate[i]);
    Narrow(g / (1.0F + Exp(-kTwiceRoot * (g + kCubic * g * g * g))) * Widen(up[i]), y + i);
  }
}

template <typename T>
WEFT_CLONES void GeGluBackward(const T* dy, const T* gate, const T* up, T* dgate, T* dup,
                               int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) {
    const float g = Widen(gate[i]);
    const float d = Widen(dy[i]);
    const float exponent = -kTwiceRoot * (g + kCubic * g * g * g);
    const float e = Exp(exponent);
    const float s = 1.0F / (1.0F + e);
    const float rest = exponent > 80.0F ? 0.0F : e * s * s;  // as in GeluBackward
    const float slope = kTwiceRoot * (1.0F + 3.0F * kCubic * g * g);
    Narrow(d * Widen(up[i]) * (s + g * rest * slope), dgate + i);
    Narrow(d * g * s, dup + i);
  }
}

#define WEFT_INSTANTIATE(T)                                                       \
  template void GeluForward<T>(const T*, T*, int64_t);                            \
  template void GeluBackward<T>(const T*, const T*, T*, int64_t);                 \
  template void SquaredReluForward<T>(const T*, T*, int64_t);                     \
  template void SquaredReluBackward<T>(const T*, const T*, T*, int64_t);          \
  template void ErfGeluForward<T>(const T*, T*, int64_t);                         \
  template void ErfGeluBackward<T>(const T*, const T*, T*, int64_t);              \
  template void SwiGluForward<T>(const T*, const T*, T*, int64_t);                \
  template void SwiGluBackward<T>(const T*, const T*, const T*, T*, T*, int64_t); \
  template void GeGluForward<T>(const T*, const T*, T*, int64_t);                 \
  template void GeGluBackward<T>(const T*, const T*, const T*, T*, T*, int64_t);
WEFT_FOR_EACH_ELEMENT(WEFT_INSTANTIATE)
#undef WEFT_INSTANTIATE

}  // namespace weft
