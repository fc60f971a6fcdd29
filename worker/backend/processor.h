// This file says what the processor of this machine is, where the choice of kernels depends on it.
// It asks CPUID alone and never times anything: a machine always chooses the same, so that it gives
// the same bits.
#pragma once

namespace weft {

struct ProcessorFeatures {
  bool intel = false;
  int model = 0;             // of Intel's family 6; 0: another one, or another maker
  bool avx2 = false;         // and fused multiply-add
  bool avx512 = false;       // F, BW, DQ, VL and CD
  bool avx512_bf16 = false;  // products of pairs of bf16 (vdpbf16ps)
  bool amx_bf16 = false;     // tiles of bf16, switched on by the operating system as well
};
ProcessorFeatures FeaturesOfThisProcessor();

}  // namespace weft
