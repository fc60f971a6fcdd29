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
  return static_cast<float>(std::bit_cast<_Float16>(x.bits));
}
inline __half __float2half_rn(float x) {
  return {std::bit_cast<uint16_t>(static_cast<_Float16>(x))};
}
// NOLINTEND
