#include "worker/backend/cuda/combine.h"
#include "worker/backend/cuda/map.h"

namespace weft {
namespace {

template <typename T>
struct Sources {
  const T* at[kMostLocalRanks];
};

// In the order of the ranks, accumulated in f32, rounded once: the CPU backend's sums to the bit.
template <typename T>
__global__ void CombineKernel(ReduceOp op, Sources<T> sources, int ranks, T* out, int64_t count) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStride()) {
    float total = ToFloat(sources.at[0][i]);
    for (int rank = 1; rank < ranks; ++rank) {
      const float value = ToFloat(sources.at[rank][i]);
      if (op == ReduceOp::kSum) {
        total += value;
      } else {
        total = value > total || value != value ? value : total;  // a not-a-number stays
      }
    }
    out[i] = FromFloat<T>(total);
  }
}

}  // namespace

cudaError_t QueueCombine(cudaStream_t stream, ReduceOp op, DType dtype, const void* const* sources,
                         int ranks, void* out, int64_t count) {
  return WithType(dtype, [&](auto zero) {
    using T = decltype(zero);
    Sources<T> typed = {};
    for (int rank = 0; rank < ranks; ++rank) typed.at[rank] = static_cast<const T*>(sources[rank]);
    return Launch(CombineKernel<T>, {.blocks = MapBlocks(count), .threads = kMapThreads}, stream,
                  op, typed, ranks, static_cast<T*>(out), count);
  });
}

}  // namespace weft
