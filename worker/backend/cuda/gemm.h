// Matrix products by cuBLASLt: products of bf16 or f16 add up in f32, products of f32 are computed
// in f32 (no TF32, so that runs agree with the CPU backend). Of the algorithms that the library
// proposes for a shape, the fastest on this device is kept when the shape is first used. For a
// deterministic device it is the first that runs, among those for operands aligned to 16 bytes,
// with nothing timed: so the same call gives the same bits, in this process or in any with the same
// library and device, wherever its operands lie. No record of a choice could promise more: another
// version of the library has other kernels.
//
// Between 16-bit elements the library also does what follows a product in the product's kernel (its
// epilogue): a pass over memory each for bias, residual and GELU is saved, and so is their
// rounding.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "worker/backend/device.h"

namespace weft {

class Graphs;

// Device memory that an algorithm may use.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

enum class GemmGelu {
  kNone,
  kForward,   // writes to `h` what GELU takes
  kGradient,  // multiplies by GELU's slope at `h`
};

// c [m, n] = beta * c + op(a) op(b), row-major; a and b as stored. dtypes of a and b are equal, c
// is of theirs or f32. Or all is what Device::Fp8MatMul takes, with b transposed, and the scales of
// a and b, on the device.
struct GemmCall {
  View a;
  Transpose transpose_a = Transpose::kNo;
  View b;
  Transpose transpose_b = Transpose::kNo;
  float beta = 0;
  View c;
  const void* scale_a = nullptr;
  const void* scale_b = nullptr;

  // The epilogue: c = gelu(residual + op(a) op(b) + bias), without what has no data or is kNone, or
  // the gradient of GELU. beta is then 0; all are of c's dtype, none is c itself.
  View bias = {};      // [1, n]; not with kGradient
  View residual = {};  // [m, n]; without GELU only
  GemmGelu gelu = GemmGelu::kNone;
  View h = {};  // [m, n]

  bool has_epilogue() const {
    return bias.data != nullptr || residual.data != nullptr || gelu != GemmGelu::kNone;
  }
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Whether a call with an epilogue is one kernel: the library has one for the types, widths and
  // alignments at hand. Waits as Run does.
  virtual bool Fuses(const GemmCall& call) = 0;
  // Queues the product. The first of a shape may wait until what is timed is done, and so is
  // refused while a graph is captured. REQUIRES: Fuses(call) if it has an epilogue.
  virtual BackendStatus Run(const GemmCall& call) = 0;
};

// Memory and stream outlive the Gemm.
struct GemmOptions {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;  // kGemmWorkspaceBytes
  // Memory that calls on the stream share, where what is timed goes if the call adds to c.
  void* scratch = nullptr;
  int64_t scratch_bytes = 0;
  Graphs* graphs = nullptr;  // asked before a shape's algorithm is chosen; null: no graphs
  bool deterministic = false;
  bool fp8 = false;  // a device that multiplies no 8-bit floats is refused
};
BackendStatus OpenGemm(const GemmOptions& options, std::unique_ptr<Gemm>* gemm);

}  // namespace weft
