// Exp: e^x in single precision, for loops that the compiler turns into vectors; libm's expf is a
// call per element. Within 1 ulp where the result is a normal number; 0 below that, infinity above
// the largest float; not-a-number passes through, so that a diverged loss stays visible.
#pragma once
#include <bit>
#include <cstdint>

namespace weft {

[[gnu::always_inline]] inline float Exp(float x) {
  // x = n ln 2 + r, |r| <= ln 2 / 2. Adding 1.5 * 2^23 rounds to the nearest integer.
  constexpr float kRound = 12582912.0F;
  constexpr float kLowest = -87.33654F;  // e^x is the least normal float
  constexpr float kHighest = 88.72283F;  // e^x is the largest float
  const float shifted = x * 1.44269504F + kRound;
  const float n = shifted - kRound;
  // ln 2 in two parts: the first has 14 bits, so n times it is exact.
  const float r = (x - n * 0.693115234375F) - n * 3.19461833e-5F;
  // (e^r - 1 - r) / r^2, interpolated at the Chebyshev nodes; relative error of e^r: 8e-10.
  float p = 1.989107986e-4F;
  p = p * r + 1.393373124e-3F;
  p = p * r + 8.333310485e-3F;
  p = p * r + 4.166646302e-2F;
  p = p * r + 1.666666716e-1F;
  p = p * r + 0.5F;
  p = p * (r * r) + r + 1.0F;
  // 2^n in two factors, so that n = 128 and n = -126 both stay inside the exponent's range.
  const auto exponent =
      static_cast<int32_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(kRound));
  const int32_t half = exponent >> 1;
  const float low = std::bit_cast<float>(static_cast<uint32_t>(half + 127) << 23);
  const float high = std::bit_cast<float>(static_cast<uint32_t>(exponent - half + 127) << 23);
  const float result = p * low * high;
  const float bounded = x > kHighest ? __builtin_inff() : result;
  return x < kLowest ? 0.0F : bounded;
}

// tanh. Near 0, where 1 - 2 / (e^2x + 1) would lose digits, a polynomial (Moshier, Cephes, tanhf);
// relative error 3e-7.
[[gnu::always_inline]] inline float Tanh(float x) {
  const float size = x < 0.0F ? -x : x;
  const float bounded = size > 20.0F ? 20.0F : size;
  const float far = 1.0F - 2.0F / (Exp(2.0F * bounded) + 1.0F);
  const float z = x * x;
  float p = -5.70498872745e-3F;
  p = p * z + 2.06390887954e-2F;
  p = p * z - 5.37397155531e-2F;
  p = p * z + 1.33314422036e-1F;
  p = p * z - 3.33332819422e-1F;
  const float near = x + x * z * p;
  const float signed_far = x < 0.0F ? -far : far;
  return size < 0.625F ? near : x == x ? signed_far : x;
}

}  // namespace weft
