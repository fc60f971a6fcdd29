#include <type_traits>

#include "worker/backend/cuda/comm/combine.h"
#include "worker/backend/cuda/kernels/map.h"

namespace weft {
namespace {

template <typename T>
struct Anywhere {
  const T* at[kMostLocalRanks];
  __host__ __device__ const T* operator()(int rank) const { return at[rank]; }
};

template <typename T>
struct Evenly {
  const T* first;
  int64_t stride;
  int own_rank;
  const T* own;
  __host__ __device__ const T* operator()(int rank) const {
    return rank == own_rank ? own : first + rank * stride;
  }
};

// Elements are accumulated in this type.
template <typename T>
using Wider = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <typename T>
__device__ __forceinline__ Wider<T> Widen(T x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return ToFloat(x);
  }
}
template <typename T>
__device__ __forceinline__ T Narrow(Wider<T> x) {
  if constexpr (std::is_same_v<T, double>) {
    return x;
  } else {
    return FromFloat<T>(x);
  }
}

// In the order of the ranks, rounded once: the CPU backend's sums to the bit.
template <typename T, int kWidth, typename Sources>
__global__ void CombineKernel(ReduceOp op, Sources sources, int ranks, T* out, int64_t packs) {
  using Wide = Pack<T, kWidth>;
  for (int64_t i = FirstIndex(); i < packs; i += IndexStride()) {
    Wider<T> totals[kWidth];
    const Wide first = reinterpret_cast<const Wide*>(sources(0))[i];
    for (int e = 0; e < kWidth; ++e) totals[e] = Widen(first.at[e]);
    for (int rank = 1; rank < ranks; ++rank) {
      const Wide values = reinterpret_cast<const Wide*>(sources(rank))[i];
      for (int e = 0; e < kWidth; ++e) {
        const Wider<T> value = Widen(values.at[e]);
        if (op == ReduceOp::kSum) {
          totals[e] += value;
        } else if (value > totals[e] || value != value) {
          totals[e] = value;  // a not-a-number stays
        }
      }
    }
    Wide combined;
    for (int e = 0; e < kWidth; ++e) combined.at[e] = Narrow<T>(totals[e]);
    reinterpret_cast<Wide*>(out)[i] = combined;
  }
}

template <typename T, typename Sources>
cudaError_t Combine(cudaStream_t stream, ReduceOp op, const Sources& sources, int ranks, T* out,
                    int64_t count) {
  constexpr int kWidth = kWidest<T>;
  bool wide = count % kWidth == 0 && IsWide(out);
  for (int rank = 0; rank < ranks; ++rank) wide = wide && IsWide(sources(rank));
  const int64_t packs = wide ? count / kWidth : count;
  const Grid grid = {.blocks = MapBlocks(packs), .threads = kMapThreads};
  const auto kernel = wide ? CombineKernel<T, kWidth, Sources> : CombineKernel<T, 1, Sources>;
  return Launch(kernel, grid, stream, op, sources, ranks, out, packs);
}

template <typename F>
cudaError_t WithReduced(DType dtype, F f) {
  return dtype == DType::kF64 ? f(double{}) : WithType(dtype, f);
}

}  // namespace

cudaError_t QueueCombine(cudaStream_t stream, ReduceOp op, DType dtype, const void* const* sources,
                         int ranks, void* out, int64_t count) {
  return WithReduced(dtype, [&](auto zero) {
    using T = decltype(zero);
    Anywhere<T> typed = {};
    for (int rank = 0; rank < ranks; ++rank) typed.at[rank] = static_cast<const T*>(sources[rank]);
    return Combine(stream, op, typed, ranks, static_cast<T*>(out), count);
  });
}

cudaError_t QueueCombineSlices(cudaStream_t stream, ReduceOp op, DType dtype,
                               const RankSlices& slices, int64_t count) {
  return WithReduced(dtype, [&](auto zero) {
    using T = decltype(zero);
    T* const own = static_cast<T*>(slices.own);
    const Evenly<T> typed = {static_cast<const T*>(slices.first),
                             slices.stride_bytes / static_cast<int64_t>(sizeof(T)), slices.own_rank,
                             own};
    return Combine(stream, op, typed, slices.ranks, own, count);
  });
}

}  // namespace weft
