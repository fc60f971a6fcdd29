// The element types of tensors in the loops of the CPU backend: each becomes float, all arithmetic
// is in float or wider, and the result is rounded once, to the nearest, ties to even. Branch-free,
// so that the compiler makes vectors of loops over 16-bit elements too.
#pragma once
#include <bit>
#include <cstdint>

#include "worker/backend/device.h"

namespace weft {

struct Bf16 {
  uint16_t bits = 0;
};
struct Fp16 {
  uint16_t bits = 0;
};

template <typename T>
inline constexpr DType kElementType = DType::kF32;
template <>
inline constexpr DType kElementType<Bf16> = DType::kBf16;
template <>
inline constexpr DType kElementType<Fp16> = DType::kF16;

[[gnu::always_inline]] inline float Widen(float x) {
  return x;
}
[[gnu::always_inline]] inline float Widen(Bf16 x) {
  return std::bit_cast<float>(uint32_t{x.bits} << 16);
}
// Subnormals by a subtraction of normal floats: denormal floats are flushed.
[[gnu::always_inline]] inline float Widen(Fp16 x) {
  const uint32_t rest = (uint32_t{x.bits} & 0x7fff) << 13;
  const uint32_t exponent = rest & 0x0f800000;
  const uint32_t normal = rest + (exponent == 0x0f800000 ? 0x70000000U : 0x38000000U);
  const float subnormal = std::bit_cast<float>(rest + 0x38800000) - 0x1p-14F;
  const uint32_t bits = exponent == 0 ? std::bit_cast<uint32_t>(subnormal) : normal;
  return std::bit_cast<float>(bits | (uint32_t{x.bits} & 0x8000) << 16);
}

[[gnu::always_inline]] inline void Narrow(float x, float* out) {
  *out = x;
}
[[gnu::always_inline]] inline void Narrow(float x, Bf16* out) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t half = 0x7fff + (bits >> 16 & 1);  // just below one half; the half for odd ones
  const uint32_t rounded =
      (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits + half;  // not-a-number stays so
  out->bits = static_cast<uint16_t>(rounded >> 16);
}
[[gnu::always_inline]] inline void Narrow(float x, Fp16* out) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rest = bits & 0x7fffffff;
  const uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
  // Below the least normal number: 0.5 has the ulp that the least subnormal is.
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(rest) + 0.5F) - 0x3f000000;
  const uint32_t special = rest > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t finite = rest < 0x38800000 ? subnormal : normal;
  const uint32_t magnitude = rest >= 0x47800000 ? special : finite;
  out->bits = static_cast<uint16_t>(magnitude | (bits >> 16 & 0x8000));
}

// Calls `work` with a value of the type that `dtype` names. REQUIRES: one of the three.
template <typename Work>
void WithElement(DType dtype, const Work& work) {
  if (dtype == DType::kBf16) {
    work(Bf16());
  } else if (dtype == DType::kF16) {
    work(Fp16());
  } else {
    work(float());
  }
}

}  // namespace weft
