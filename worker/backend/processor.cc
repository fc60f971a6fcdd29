#include "worker/backend/processor.h"

#include <cpuid.h>

#include <cstdint>

namespace weft {
namespace {

// Family and model of leaf 1 (Intel SDM, volume 2A, CPUID): 4 bits each and their extensions.
int ModelOfFamily6() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (a >> 8 & 0xf) != 6) return 0;
  return static_cast<int>((a >> 4 & 0xf) | (a >> 12 & 0xf0));
}

// AMX_BF16 and AMX_TILE: bits 22 and 24 of leaf 7's edx. The state of tiles is switched on in bits
// 17 and 18 of XCR0, which is readable where leaf 1 says so (bit 27 of ecx).
bool HasTilesOfBf16() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1) == 0) return false;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  constexpr uint32_t kTiles = (1U << 22) | (1U << 24);
  if ((d & kTiles) != kTiles) return false;
  uint32_t low = 0, high = 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  constexpr uint32_t kTileState = (1U << 17) | (1U << 18);
  return (low & kTileState) == kTileState;
}

}  // namespace

ProcessorFeatures FeaturesOfThisProcessor() {
  ProcessorFeatures features;
  __builtin_cpu_init();
  features.intel = __builtin_cpu_is("intel") != 0;
  features.model = features.intel ? ModelOfFamily6() : 0;
  features.avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
  features.avx512 =
      __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512cd") != 0;
  features.avx512_bf16 = __builtin_cpu_supports("avx512bf16") != 0;
  features.amx_bf16 = HasTilesOfBf16();
  return features;
}

}  // namespace weft
