// Stands in for the toolkit's header of this name; see cuda_runtime.h beside it. Rounds to the
// nearest even, keeps what is not a number.
#pragma once
#include <bit>
#include <cstdint>

// NOLINTBEGIN: names are the toolkit's.
struct __nv_bfloat16 {
  uint16_t bits = 0;
};
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {static_cast<uint16_t>(bits >> 16 | 0x40U)};
  return {static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16)};
}
// NOLINTEND
