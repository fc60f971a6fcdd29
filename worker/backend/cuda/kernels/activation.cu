// The formulas, and where they guard against infinity times zero, are those of
// cpu/kernels/activation.cc. Divisions are off by two units in the last place at most, and 0 where
// the divisor is above 2^126 and the quotient so below 2e-36 (CUDA C++ Programming Guide,
// __fdividef): exact ones would be half of the instructions of kernels that memory is to bound.
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/map.h"

namespace weft {
namespace {

constexpr float kTwiceRoot = 1.59576912F;  // 2 sqrt(2 / pi)
constexpr float kCubic = 0.044715F;
constexpr float kRootHalf = 0.707106781F;
constexpr float kDensityAtZero = 0.398942280F;  // of a normal distribution: 1 / sqrt(2 pi)

// x s with s = 1 / (1 + e^(-2u)), u = sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluForward {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    const float v = x[0];
    y[0] = __fdividef(v, 1.0F + expf(-kTwiceRoot * (v + kCubic * v * v * v)));
  }
};

// dy, x -> dx
struct GeluBackward {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    const float v = x[1];
    const float exponent = -kTwiceRoot * (v + kCubic * v * v * v);
    const float e = expf(exponent);
    const float s = __fdividef(1.0F, 1.0F + e);
    const float rest = exponent > 80.0F ? 0.0F : e * s * s;  // s (1 - s)
    const float slope = kTwiceRoot * (1.0F + 3.0F * kCubic * v * v);
    y[0] = x[0] * (s + v * rest * slope);
  }
};

struct SquaredReluForward {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = x[0] > 0.0F ? x[0] * x[0] : x[0] * 0.0F;
  }
};

// dy, x -> dx
struct SquaredReluBackward {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = x[0] * (x[1] > 0.0F ? 2.0F * x[1] : x[1] * 0.0F);
  }
};

// x Phi(x), the share of a normal distribution below x.
struct ErfGeluForward {
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = 0.5F * x[0] * erfcf(-kRootHalf * x[0]);
  }
};

// dy, x -> dx = dy (Phi(x) + x phi(x))
struct ErfGeluBackward {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    const float v = x[1];
    const float density = kDensityAtZero * expf(-0.5F * v * v);
    const float bend = density == 0.0F ? 0.0F : v * density;  // no infinity times zero
    y[0] = x[0] * (0.5F * erfcf(-kRootHalf * v) + bend);
  }
};

struct CapForward {
  float cap;
  __device__ void operator()(const float (&x)[1], float (&y)[1]) const {
    y[0] = cap * tanhf(x[0] / cap);
  }
};

// gate, up -> y
struct SwiGluForward {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    y[0] = __fdividef(x[0], 1.0F + expf(-x[0])) * x[1];
  }
};

// dy, gate, up -> dgate, dup
struct SwiGluBackward {
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[1];
    const float e = expf(-g > 80.0F ? 80.0F : -g);
    const float s = __fdividef(1.0F, 1.0F + e);
    y[0] = x[0] * x[2] * s * (1.0F + g * (e * s));
    y[1] = x[0] * g * s;
  }
};

// gate, up -> y
struct GeGluForward {
  __device__ void operator()(const float (&x)[2], float (&y)[1]) const {
    const float g = x[0];
    y[0] = __fdividef(g, 1.0F + expf(-kTwiceRoot * (g + kCubic * g * g * g))) * x[1];
  }
};

// dy, gate, up -> dgate, dup
struct GeGluBackward {
  __device__ void operator()(const float (&x)[3], float (&y)[2]) const {
    const float g = x[1];
    const float exponent = -kTwiceRoot * (g + kCubic * g * g * g);
    const float e = expf(exponent);
    const float s = __fdividef(1.0F, 1.0F + e);
    const float rest = exponent > 80.0F ? 0.0F : e * s * s;  // s (1 - s)
    const float slope = kTwiceRoot * (1.0F + 3.0F * kCubic * g * g);
    y[0] = x[0] * x[2] * (s + g * rest * slope);
    y[1] = x[0] * g * s;
  }
};

template <typename T>
const T* In(View x) {
  return static_cast<const T*>(x.data);
}
template <typename T>
T* Out(View x) {
  return static_cast<T*>(x.data);
}

}  // namespace

cudaError_t QueueActivate(const Queue& queue, PlainActivation f, View x, View y) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MapArrays<T, 1, 1> arrays = {{In<T>(x)}, {Out<T>(y)}};
    if (f == PlainActivation::kErfGelu) {
      return Map<T, 1, 1>(queue.stream, ErfGeluForward{}, arrays, x.elements());
    }
    return Map<T, 1, 1>(queue.stream, SquaredReluForward{}, arrays, x.elements());
  });
}

cudaError_t QueueActivateGradient(const Queue& queue, PlainActivation f, View dy, View x, View dx) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const MapArrays<T, 2, 1> arrays = {{In<T>(dy), In<T>(x)}, {Out<T>(dx)}};
    if (f == PlainActivation::kErfGelu) {
      return Map<T, 2, 1>(queue.stream, ErfGeluBackward{}, arrays, x.elements());
    }
    return Map<T, 2, 1>(queue.stream, SquaredReluBackward{}, arrays, x.elements());
  });
}

cudaError_t QueueCap(const Queue& queue, View x, double cap) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return MapRows<T>(queue.stream, CapForward{static_cast<float>(cap)}, {x}, {x});
  });
}

cudaError_t QueueGelu(const Queue& queue, View x, View y) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Map<T, 1, 1>(queue.stream, GeluForward{}, {{In<T>(x)}, {Out<T>(y)}}, x.elements());
  });
}

cudaError_t QueueGeluGradient(const Queue& queue, View dy, View x, View dx) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Map<T, 2, 1>(queue.stream, GeluBackward{}, {{In<T>(dy), In<T>(x)}, {Out<T>(dx)}},
                        x.elements());
  });
}

cudaError_t QueueGlu(const Queue& queue, Gate f, View gate, View up, View y) {
  return WithType(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (f == Gate::kGelu) return MapRows<T>(queue.stream, GeGluForward{}, {gate, up}, {y});
    return MapRows<T>(queue.stream, SwiGluForward{}, {gate, up}, {y});
  });
}

cudaError_t QueueGluGradient(const Queue& queue, Gate f, View dy, View gate, View up, View dgate,
                             View dup) {
  return WithType(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (f == Gate::kGelu) {
      return MapRows<T>(queue.stream, GeGluBackward{}, {dy, gate, up}, {dgate, dup});
    }
    return MapRows<T>(queue.stream, SwiGluBackward{}, {dy, gate, up}, {dgate, dup});
  });
}

}  // namespace weft
