#include "bench/peak_rate.h"

#include <immintrin.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

namespace weft {
namespace {

// Independent sums that are in flight: more than latency times units of any processor here.
constexpr int kSums = 24;
constexpr int64_t kRounds = 20000;

struct Loop {
  const char* units;
  double flops;  // of one call
  void (*run)();
};

__attribute__((target("avx512f"))) void Avx512Fp32() {
  __m512 sums[kSums];
  __m512 a = _mm512_set1_ps(0.5F);
  for (__m512& sum : sums) sum = a;
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_fmadd_ps(sums[i], a, a);
  }
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
}

__attribute__((target("avx2,fma"))) void Avx2Fp32() {
  constexpr int kFew = 12;  // of 16 registers
  __m256 sums[kFew];
  __m256 a = _mm256_set1_ps(0.5F);
  for (__m256& sum : sums) sum = a;
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kFew; ++i) sums[i] = _mm256_fmadd_ps(sums[i], a, a);
  }
  for (__m256& sum : sums) asm volatile("" : "+x"(sum));
}

__attribute__((target("avx512f,avx512bf16"))) void Avx512Bf16() {
  __m512 sums[kSums];
  const __m512 half = _mm512_set1_ps(0.5F);
  const __m512bh a = _mm512_cvtne2ps_pbh(half, half);
  for (__m512& sum : sums) sum = half;
  for (int64_t round = 0; round < kRounds; ++round) {
#pragma GCC unroll 24
    for (int i = 0; i < kSums; ++i) sums[i] = _mm512_dpbf16_ps(sums[i], a, a);
  }
  for (__m512& sum : sums) asm volatile("" : "+v"(sum));
}

// Four tiles of 16 x 16 sums, from two tiles of 16 rows of 32 bf16.
__attribute__((target("amx-tile,amx-bf16"))) void AmxBf16() {
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64};
    uint8_t rows[16] = {16, 16, 16, 16, 16, 16};
  } config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_zero(4);
  _tile_zero(5);
  for (int64_t round = 0; round < kRounds; ++round) {
    _tile_dpbf16ps(0, 4, 5);
    _tile_dpbf16ps(1, 4, 5);
    _tile_dpbf16ps(2, 4, 5);
    _tile_dpbf16ps(3, 4, 5);
  }
  _tile_release();
}

constexpr double kDoneRounds = static_cast<double>(kRounds);
constexpr Loop kAvx512Fp32 = {"AVX-512 fp32", kDoneRounds* kSums * 16 * 2, Avx512Fp32};
constexpr Loop kAvx2Fp32 = {"AVX2 fp32", kDoneRounds * 12 * 8 * 2, Avx2Fp32};
constexpr Loop kAvx512Bf16 = {"AVX-512 bf16", kDoneRounds* kSums * 32 * 2, Avx512Bf16};
constexpr Loop kAmxBf16 = {"AMX bf16", kDoneRounds * 4 * 16 * 16 * 32 * 2, AmxBf16};

// Linux lets a process use AMX's tiles once it has asked (Documentation/arch/x86/xstate.rst).
bool MayUseTiles() {
  constexpr int kRequestPermission = 0x1023;
  constexpr int kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

// CPUID leaf 7: AMX_TILE is bit 24 of edx, AMX_BF16 bit 22; g++ 12 has no name for them.
bool HasTiles() {
  uint32_t a = 7, b = 0, c = 0, d = 0;
  asm volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  const uint32_t both = (1U << 24) | (1U << 22);
  return (d & both) == both && MayUseTiles();
}

PeakRate Measure(const Loop& loop, int threads, double seconds) {
  using Clock = std::chrono::steady_clock;
  std::vector<double> rates(static_cast<size_t>(threads));
  std::vector<std::jthread> running;
  running.reserve(rates.size());
  for (double& rate : rates) {
    running.emplace_back([&loop, &rate, seconds] {
      loop.run();  // the clock that the wide units get
      const Clock::time_point start = Clock::now();
      double calls = 0;
      double elapsed_s = 0;
      while (elapsed_s < seconds) {
        loop.run();
        ++calls;
        elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
      }
      rate = calls * loop.flops / elapsed_s;
    });
  }
  running.clear();
  PeakRate peak = {.flops_per_s = 0, .units = loop.units};
  for (const double rate : rates) peak.flops_per_s += rate;
  return peak;
}

}  // namespace

PeakRate PeakFp32(int threads, double seconds) {
  __builtin_cpu_init();
  const bool wide = __builtin_cpu_supports("avx512f") != 0;
  return Measure(wide ? kAvx512Fp32 : kAvx2Fp32, threads, seconds);
}

PeakRate PeakBf16(int threads, double seconds) {
  __builtin_cpu_init();
  if (HasTiles()) return Measure(kAmxBf16, threads, seconds);
  if (__builtin_cpu_supports("avx512bf16") != 0) return Measure(kAvx512Bf16, threads, seconds);
  return PeakFp32(threads, seconds);
}

}  // namespace weft
