// Matrix products by cuBLASLt: products of bf16 or f16 add up in f32, products of f32 are computed
// in f32 (no TF32, so that runs agree with the CPU backend). Of the algorithms that the library
// proposes for a shape, the fastest on this device is kept when the shape is first used. For a
// deterministic device it is the first that can run, with nothing timed: so the same call gives the
// same bits, in this process or in any with the same library and device. No record of a choice
// could promise more: another version of the library has other kernels.
//
// Between 16-bit elements the library also does what follows a product in the product's kernel (its
// epilogue): a pass over memory each for bias, residual and GELU is saved, and so is their
// rounding. Where a product and kernels of weft's own are faster nevertheless, they are taken; a
// deterministic device takes the library's kernel wherever there is one. A bias gradient too comes
// out of the product that reads the same rows, but in f32 and not added to what is there: that is a
// kernel of weft's own, over a vector; a deterministic device leaves both to the sums over rows.
//
// Products of 8-bit floats add up in f32. The library's fast mode (CUBLASLT_MATMUL_DESC_FAST_ACCUM)
// moves the tensor cores' sums, of fewer bits, to f32 less often: its error grows with what is
// summed over, and weft has measured neither that nor its gain. So it is there where a job asks for
// it, and only for products of two e4m3, those of forward passes, as others use it; gradients keep
// their sums.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/device.h"

namespace weft {

// Device memory that an algorithm may use.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

enum class GemmGelu {
  kNone,
  kForward,   // writes to `h` what GELU takes
  kGradient,  // multiplies by GELU's slope at `h`
};

// c [m, n] = beta * c + op(a) op(b), row-major; a and b as stored. dtypes of a and b are equal, c
// is of theirs or f32; a, and with beta 0 also c, may be columns of a wider matrix. Or all is what
// Device::Fp8MatMul takes, with b transposed, and the scales of a and b, on the device.
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

  // Another, by itself: bias_gradient += sums over k of op(a), both [1, m] and f32, as is c; sums
  // are overwritten, and lie behind all else in the scratch memory. beta may be 1.
  View bias_gradient = {};
  View sums = {};

  bool has_bias_gradient() const { return bias_gradient.data != nullptr; }
  bool has_epilogue() const {
    return bias.data != nullptr || residual.data != nullptr || gelu != GemmGelu::kNone ||
           has_bias_gradient();
  }
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  // Whether Run is to be given a call with an epilogue: the library has a kernel for the types,
  // widths and alignments at hand, and it is no slower than `apart`, which queues what it is given
  // in more kernels: the call, whose results both may then have written, or one like it elsewhere,
  // if the call adds to its results. Waits as Run does.
  virtual bool Fuses(const GemmCall& call, const std::function<void(const GemmCall&)>& apart) = 0;
  // Queues the product. The first of a shape may wait until what is timed is done, and so is
  // refused while a graph is captured. REQUIRES: Fuses(call) if it has an epilogue.
  virtual BackendStatus Run(const GemmCall& call) = 0;
  // Reports, for the log, what the ways chosen reach of the products that were timed since the last
  // call: m x n x k, how a and b lie (t: transposed), types, "+c" where they add to c, what is
  // fused, 10^12 operations a second. Empty: none.
  virtual std::string TakeReport() = 0;
};

// Memory, stream and graphs outlive the Gemm.
struct GemmOptions {
  Queue queue = {};           // its graphs are asked before a shape's algorithm is chosen
  void* workspace = nullptr;  // kGemmWorkspaceBytes
  bool deterministic = false;
  bool fp8 = false;                    // a device that multiplies no 8-bit floats is refused
  bool fp8_fast_accumulation = false;  // of two e4m3
};
BackendStatus OpenGemm(const GemmOptions& options, std::unique_ptr<Gemm>* gemm);

}  // namespace weft
