// Stands in for the toolkit's header of this name; see cuda_runtime.h beside it. The compiler's
// _Float16 has the same format and rounds to the nearest even.
#pragma once
#include <bit>
#include <cstdint>

// NOLINTBEGIN: names are the toolkit's.
struct __half {
  uint16_t bits = 0;
};
inline float __half2float(__half x) {
  // A cast from _Float16 gives the same, but calls a function, which took a third of some tests. No
  // single precision is subnormal on the way, as some tests have those taken for zeros.
  const uint32_t sign = (x.bits & 0x8000U) << 16;
  const uint32_t exponent = x.bits >> 10 & 0x1fU;
  const uint32_t mantissa = x.bits & 0x3ffU;
  uint32_t bits = (exponent + (exponent == 0x1f ? 0xe0 : 112)) << 23 | mantissa << 13;
  if (exponent == 0) bits = std::bit_cast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24F);
  return std::bit_cast<float>(sign | bits);
}
inline __half __float2half_rn(float x) {
  return {std::bit_cast<uint16_t>(static_cast<_Float16>(x))};
}
// NOLINTEND
