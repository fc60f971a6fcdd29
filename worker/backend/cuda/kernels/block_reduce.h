// Sums and maxima over the threads of a block, in an order that depends on the block's size alone,
// so that the same call gives the same bits. Every thread of the block must call; all get the
// result. Blocks have a multiple of 32 threads, at most 1024.
#pragma once
#include <cuda_runtime.h>

namespace weft {

inline constexpr unsigned kAllLanes = 0xffffffffU;

struct SumOf {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// Passes over not-a-number, as the CPU backend's MaximumOf does.
struct MaxOf {
  __device__ float operator()(float a, float b) const { return a > b || b != b ? a : b; }
};
struct LeastOf {
  __device__ int operator()(int a, int b) const { return a < b ? a : b; }
};
struct GreatestOf {
  __device__ int operator()(int a, int b) const { return a > b ? a : b; }
};

template <typename Combine, typename T>
__device__ T ReduceWarp(Combine combine, T value) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

template <typename Combine, typename T>
__device__ T ReduceBlock(Combine combine, T value) {
  __shared__ T of_warp[32];
  value = ReduceWarp(combine, value);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  __syncthreads();  // of_warp may still be read by a slow thread of the reduction before
  if (lane == 0) of_warp[threadIdx.x / 32] = value;
  __syncthreads();
  T total = of_warp[0];
  for (int warp = 1; warp < warps; ++warp) total = combine(total, of_warp[warp]);
  return total;
}

}  // namespace weft
