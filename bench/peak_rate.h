// A peak rate is what this processor's arithmetic units can do at most, measured: products and sums
// of registers, nothing loaded or stored. It is a ceiling for matrix products in the same run.
#pragma once
#include <string>

namespace weft {

struct PeakRate {
  double flops_per_s = 0;
  std::string units;  // by which: "AVX-512 bf16"
};

// Measures `threads` threads at once, by the widest units for the type; each asks them for about
// `seconds`.
PeakRate PeakFp32(int threads, double seconds = 0.05);
// Products of bf16 that are summed in fp32. Where there are none, PeakFp32.
PeakRate PeakBf16(int threads, double seconds = 0.05);

}  // namespace weft
