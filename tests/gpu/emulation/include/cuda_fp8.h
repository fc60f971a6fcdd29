// Stands in for the toolkit's header of this name; see cuda_runtime.h beside it. The nearest number
// is found among all of a format's, written from Micikevicius et al., arXiv:2209.05433, table 1.
#pragma once
#include <cmath>
#include <cstdint>

// NOLINTBEGIN: names are the toolkit's.
using __nv_fp8_storage_t = unsigned char;
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };

inline float __emulated_fp8_magnitude(int code, bool is_e4m3) {
  const int fraction_bits = is_e4m3 ? 3 : 2;
  const int exponent = code >> fraction_bits;
  const float fraction =
      static_cast<float>(code % (1 << fraction_bits)) / static_cast<float>(1 << fraction_bits);
  const int bias = is_e4m3 ? 7 : 15;
  return exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias);
}

// Only as weft calls it: __NV_SATFINITE, which makes infinities the largest number.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t /*saturation*/,
                                                __nv_fp8_interpretation_t format) {
  static const struct Numbers {
    Numbers() {
      for (int code = 0; code < 128; ++code) {
        at[0][code] = __emulated_fp8_magnitude(code, true);
        at[1][code] = __emulated_fp8_magnitude(code, false);
      }
    }
    float at[2][128];
  } kNumbers;
  const bool is_e4m3 = format == __NV_E4M3;
  const float* const numbers = kNumbers.at[is_e4m3 ? 0 : 1];
  const int largest = is_e4m3 ? 0x7e : 0x7b;
  if (std::isnan(x)) return 0x7f;
  int below = 0;  // the greatest code whose number is at most |x|
  for (int step = 64; step > 0; step /= 2) {
    if (below + step > largest) continue;
    if (numbers[below + step] <= std::fabs(x)) below += step;
  }
  int nearest = below;
  if (below < largest) {
    const float up = numbers[below + 1] - std::fabs(x);
    const float down = std::fabs(x) - numbers[below];
    if (up < down || (up == down && below % 2 == 1)) nearest = below + 1;
  }
  return static_cast<__nv_fp8_storage_t>(nearest | (std::signbit(x) ? 0x80 : 0));
}
// NOLINTEND
