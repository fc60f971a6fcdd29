// Matrix products by cuBLASLt: products of bf16 or f16 add up in f32, products of f32 are computed
// in f32 (no TF32, so that runs agree with the CPU backend). One algorithm per shape is asked for
// once and kept, so that the same call gives the same bits.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <memory>

#include "worker/backend/device.h"

namespace weft {

// Device memory that an algorithm may use.
inline constexpr int64_t kGemmWorkspaceBytes = int64_t{32} << 20;

// c [m, n] = beta * c + op(a) op(b), row-major; a and b as stored. dtypes of a and b are equal, c
// is of theirs or f32.
struct GemmCall {
  View a;
  Transpose transpose_a = Transpose::kNo;
  View b;
  Transpose transpose_b = Transpose::kNo;
  float beta = 0;
  View c;
};

class Gemm {
 public:
  virtual ~Gemm() = default;
  virtual BackendStatus Run(const GemmCall& call) = 0;
};

// `workspace` has kGemmWorkspaceBytes; it and `stream` outlive the object.
BackendStatus OpenGemm(cudaStream_t stream, void* workspace, std::unique_ptr<Gemm>* gemm);

}  // namespace weft
