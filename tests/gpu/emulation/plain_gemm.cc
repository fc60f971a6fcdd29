// Stands in for cuBLASLt (gemm.h) where kernels run on the CPU: plain loops, sums in double.
#include <bit>
#include <memory>

#include "worker/backend/cuda/gemm.h"

namespace weft {
namespace {

float At(View x, int64_t i) {
  const uint16_t bits =
      x.dtype == DType::kF32 ? uint16_t{0} : static_cast<const uint16_t*>(x.data)[i];
  if (x.dtype == DType::kBf16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  if (x.dtype == DType::kF16) return static_cast<float>(std::bit_cast<_Float16>(bits));
  return static_cast<const float*>(x.data)[i];
}

void Put(View x, int64_t i, float value) {
  if (x.dtype == DType::kF32) {
    static_cast<float*>(x.data)[i] = value;
  } else if (x.dtype == DType::kF16) {
    static_cast<uint16_t*>(x.data)[i] = std::bit_cast<uint16_t>(static_cast<_Float16>(value));
  } else {
    const auto bits = std::bit_cast<uint32_t>(value);
    static_cast<uint16_t*>(x.data)[i] =
        static_cast<uint16_t>((bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
}

class PlainGemm final : public Gemm {
 public:
  BackendStatus Run(const GemmCall& call) override {
    const bool flip_a = call.transpose_a == Transpose::kYes;
    const bool flip_b = call.transpose_b == Transpose::kYes;
    const int64_t depth = flip_a ? call.a.rows : call.a.cols;
    for (int64_t i = 0; i < call.c.rows; ++i) {
      for (int64_t j = 0; j < call.c.cols; ++j) {
        const int64_t at = i * call.c.cols + j;
        double sum = call.beta == 0 ? 0 : static_cast<double>(At(call.c, at));
        for (int64_t k = 0; k < depth; ++k) {
          sum += static_cast<double>(At(call.a, flip_a ? k * call.a.cols + i : i * depth + k)) *
                 static_cast<double>(At(call.b, flip_b ? j * depth + k : k * call.b.cols + j));
        }
        Put(call.c, at, static_cast<float>(sum));
      }
    }
    return {};
  }
};

}  // namespace

BackendStatus OpenGemm(cudaStream_t /*stream*/, void* /*workspace*/, std::unique_ptr<Gemm>* gemm) {
  *gemm = std::make_unique<PlainGemm>();
  return {};
}

}  // namespace weft
