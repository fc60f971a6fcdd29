// 8-bit floating point (Micikevicius et al., arXiv:2209.05433, table 1): e4m3, of 4 bits of
// exponent and 3 of mantissa, which has no infinity and reaches 448; e5m2, which reaches 57344.
// A tensor in 8 bits has one scale, by its own largest magnitude: what Transformer Engine calls
// current scaling (no history of earlier steps, so nothing that a restart would have to bring
// back).
//
// Scales are powers of two. Dividing by them and multiplying by them is exact, so the only rounding
// is that to a code; and a number of at least 2^-13 of its tensor's largest magnitude in e4m3
// (2^-29 in e5m2) becomes the same number whatever the scale, that is, however layouts cut the
// tensor. A scale of 448 / largest would use up to one more bit of the range below, no more of the
// mantissa.
//
// Operands of both operations of device.h are checked here, the same for both backends. For host
// code, and C++17: nvcc reads it too. std only.
#pragma once
#include <algorithm>
#include <array>
#include <climits>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "worker/backend/operands.h"

namespace weft {

struct Fp8Format {
  int mantissa_bits = 0;
  int exponent_bias = 0;
  int largest_code = 0;  // of the largest number, 1.75 * 2^largest_exponent
  int largest_exponent = 0;
};
inline constexpr Fp8Format kE4m3Format = {3, 7, 0x7e, 8};
inline constexpr Fp8Format kE5m2Format = {2, 15, 0x7b, 15};
inline constexpr uint8_t kFp8NotANumber = 0x7f;  // of both
// So the product of two is no denormal, which would be flushed. Of a tensor whose numbers are all
// smaller than such a scale makes of them (448 * 2^-63), more is lost than rounding says.
inline constexpr int kLeastFp8ScaleExponent = -63;

// REQUIRES: kE4m3 or kE5m2.
constexpr const Fp8Format& Fp8FormatOf(DType dtype) {
  return dtype == DType::kE4m3 ? kE4m3Format : kE5m2Format;
}

// The least power of two that divides all magnitudes up to `largest`, a finite one, to what the
// format holds, but at least 2^kLeastFp8ScaleExponent; 1 for 0 and denormals.
inline float Fp8Scale(const Fp8Format& format, float largest) {
  if (largest < std::numeric_limits<float>::min()) return 1;
  int exponent = 0;
  const float mantissa = 2 * std::frexp(largest, &exponent);  // [1, 2)
  exponent -= 1 + format.largest_exponent - (mantissa > 1.75F ? 1 : 0);
  return std::ldexp(1.0F, std::max(exponent, kLeastFp8ScaleExponent));
}

[[gnu::always_inline]] inline uint32_t Fp8BitsOf(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return bits;
}
[[gnu::always_inline]] inline float Fp8FloatOf(uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// The code nearest to x, ties to the even one; numbers beyond the largest become it; infinities and
// not-a-numbers become not-a-number. Branch-free, so that the compiler makes vectors of loops.
[[gnu::always_inline]] inline uint8_t ToFp8(const Fp8Format& format, float x) {
  constexpr uint32_t kInfinity = 0x7f800000;
  const auto bits = Fp8BitsOf(x);
  const uint32_t rest = bits & 0x7fffffff;
  const int dropped = 23 - format.mantissa_bits;
  const auto rebias = static_cast<uint32_t>(127 - format.exponent_bias) << 23;
  const uint32_t half = (uint32_t{1} << (dropped - 1)) - 1 + (rest >> dropped & 1);
  const uint32_t normal = (rest - rebias + half) >> dropped;
  // Below the least normal number: `unit` has the ulp that the least subnormal is.
  const uint32_t unit = rebias + (static_cast<uint32_t>(dropped + 1) << 23);
  const uint32_t subnormal = Fp8BitsOf(Fp8FloatOf(rest) + Fp8FloatOf(unit)) - unit;
  const uint32_t least_normal = rebias + (uint32_t{1} << 23);
  const uint32_t finite = std::min(rest < least_normal ? subnormal : normal,
                                   static_cast<uint32_t>(format.largest_code));
  return static_cast<uint8_t>(rest >= kInfinity ? kFp8NotANumber : finite | (bits >> 24 & 0x80));
}

// Returns the number of each code; codes beyond the largest are not-a-number (e5m2's infinities are
// never written).
inline std::array<float, 256> Fp8Numbers(const Fp8Format& format) {
  std::array<float, 256> numbers = {};
  for (int code = 0; code < 256; ++code) {
    const int magnitude = code & 0x7f;
    const int exponent = magnitude >> format.mantissa_bits;
    const int fraction = magnitude & ((1 << format.mantissa_bits) - 1);
    const int whole = exponent == 0 ? 0 : 1 << format.mantissa_bits;
    float number = std::ldexp(static_cast<float>(whole + fraction),
                              std::max(exponent, 1) - format.exponent_bias - format.mantissa_bits);
    if (magnitude > format.largest_code) number = std::numeric_limits<float>::quiet_NaN();
    numbers[static_cast<size_t>(code)] = code < 0x80 ? number : -number;
  }
  return numbers;
}

inline bool HasFp8Shape(View x) {
  return x.data != nullptr && x.is_contiguous() && x.rows % kFp8Unit == 0 &&
         x.cols % kFp8Unit == 0 && reinterpret_cast<uintptr_t>(x.data) % kFp8Unit == 0;
}
inline bool IsFp8(View x) {
  return (x.dtype == DType::kE4m3 || x.dtype == DType::kE5m2) && HasFp8Shape(x);
}

// Whether operands are what Device::ToFp8 takes.
inline bool FitsToFp8(View x, View codes, View transposed, View scale) {
  const bool has_codes = codes.data != nullptr;
  const bool has_transposed = transposed.data != nullptr;
  return x.dtype == DType::kBf16 && HasFp8Shape(x) && (has_codes || has_transposed) &&
         (!has_codes || (IsFp8(codes) && codes.rows == x.rows && codes.cols == x.cols)) &&
         (!has_transposed ||
          (IsFp8(transposed) && transposed.rows == x.cols && transposed.cols == x.rows)) &&
         (!has_codes || !has_transposed || codes.dtype == transposed.dtype) && IsVector(scale, 1);
}

// The same of Device::Fp8MatMul.
inline bool FitsFp8MatMul(const Fp8View& a, const Fp8View& b, float beta, View c) {
  const bool both_wide = a.codes.dtype == DType::kE5m2 && b.codes.dtype == DType::kE5m2;
  return IsFp8(a.codes) && IsFp8(b.codes) && a.codes.cols == b.codes.cols && !both_wide &&
         IsVector(a.scale, 1) && IsVector(b.scale, 1) && c.rows == a.codes.rows &&
         c.cols == b.codes.rows && (c.dtype == DType::kBf16 || c.dtype == DType::kF32) &&
         c.data != nullptr && c.stride() >= c.cols && (beta == 0 || c.is_contiguous()) &&
         std::max({c.rows, c.cols, a.codes.cols}) <= INT_MAX;
}

}  // namespace weft
