// A tensor in 8-bit floating point: its largest magnitude in two steps, then its codes, as it lies
// or transposed or both, in one pass over tiles. What cpu/fp8.cc computes, to the bit: a maximum
// has no order, and quotients by a power of two are exact.
#include <cuda_fp8.h>

#include <algorithm>
#include <cmath>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/fp8.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;
constexpr int kRun = 8;  // elements of an access
constexpr int kTile = 64;
constexpr int kPitch = kTile + 4;  // of a tile's rows: neighbouring ones start in other banks
constexpr int kRunsPerRow = kTile / kRun;
constexpr int kOutBytes = 16;  // of an access
constexpr int kOutsPerRow = kTile / kOutBytes;

using Wide = Pack<__nv_bfloat16, kRun>;

__global__ void __launch_bounds__(kThreads)
    LargestPartsKernel(const Wide* x, int64_t runs, float* parts) {
  float largest = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < runs;
       i += stride) {
    const Wide run = x[i];
    for (int e = 0; e < kRun; ++e) {
      const float magnitude = fabsf(ToFloat(run.at[e]));
      if (magnitude < INFINITY) largest = fmaxf(largest, magnitude);
    }
  }
  largest = ReduceBlock(MaxOf{}, largest);
  if (threadIdx.x == 0) parts[blockIdx.x] = largest;
}

// Fp8Scale of fp8.h.
__device__ float ScaleOf(const Fp8Format& format, float largest) {
  constexpr int kBias = 127;
  const auto bits = static_cast<int>(__float_as_uint(largest));
  const int exponent = bits >> 23;
  if (exponent == 0) return 1;
  const int above = (bits & 0x7fffff) > 0x600000 ? 1 : 0;  // 1.75
  const int wanted = exponent - kBias - format.largest_exponent + above;
  return __uint_as_float(static_cast<unsigned>(max(wanted, kLeastFp8ScaleExponent) + kBias) << 23);
}

__global__ void __launch_bounds__(kThreads)
    ScaleKernel(Fp8Format format, const float* parts, int count, float* scale) {
  float largest = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    largest = fmaxf(largest, parts[i]);
  }
  largest = ReduceBlock(MaxOf{}, largest);
  if (threadIdx.x == 0) *scale = ScaleOf(format, largest);
}

template <__nv_fp8_interpretation_t kFormat>
__device__ uint8_t CodeOf(float x) {
  const uint8_t code = __nv_cvt_float_to_fp8(x, __NV_SATFINITE, kFormat);
  return fabsf(x) < INFINITY ? code : kFp8NotANumber;
}

// x [rows, cols]; a block takes a tile of it. Either output may be null.
template <__nv_fp8_interpretation_t kFormat>
__global__ void __launch_bounds__(kThreads)
    CodesKernel(const __nv_bfloat16* x, int64_t rows, int64_t cols, const float* scale,
                uint8_t* codes, uint8_t* transposed) {
  alignas(4) __shared__ uint8_t tile[kTile * kPitch];  // by column
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kTile;
  const float inverse = 1.0F / *scale;  // exact
  const int thread = static_cast<int>(threadIdx.x);
  const int run = thread % kRunsPerRow * kRun;
  for (int r = thread / kRunsPerRow; r < kTile; r += kThreads / kRunsPerRow) {
    const int64_t row = first_row + r;
    const int64_t col = first_col + run;
    if (row >= rows || col >= cols) continue;
    const Wide from = *reinterpret_cast<const Wide*>(x + row * cols + col);
    Pack<uint8_t, kRun> to;
    for (int e = 0; e < kRun; ++e) to.at[e] = CodeOf<kFormat>(ToFloat(from.at[e]) * inverse);
    if (codes != nullptr) *reinterpret_cast<Pack<uint8_t, kRun>*>(codes + row * cols + col) = to;
    for (int e = 0; e < kRun; ++e) tile[(run + e) * kPitch + r] = to.at[e];
  }
  if (transposed == nullptr) return;
  __syncthreads();
  for (int i = thread; i < kTile * kOutsPerRow; i += kThreads) {
    const int c = i / kOutsPerRow;
    const int r = i % kOutsPerRow * kOutBytes;
    const int64_t row = first_row + r;
    const int64_t col = first_col + c;
    if (row >= rows || col >= cols) continue;
    using Word = Pack<uint8_t, 4>;
    Pack<Word, kOutBytes / 4> to;
    for (int w = 0; w < kOutBytes / 4; ++w) {
      to.at[w] = *reinterpret_cast<const Word*>(tile + c * kPitch + r + 4 * w);
    }
    *reinterpret_cast<Pack<Word, kOutBytes / 4>*>(transposed + col * rows + row) = to;
  }
}

}  // namespace

cudaError_t QueueToFp8(const Queue& queue, View x, View codes, View transposed, View scale) {
  const DType type = codes.data != nullptr ? codes.dtype : transposed.dtype;
  if (queue.scratch_bytes < kMostBlocks * static_cast<int64_t>(sizeof(float))) {
    return cudaErrorInvalidValue;
  }
  auto* const parts = static_cast<float*>(queue.scratch);
  auto* const to = static_cast<float*>(scale.data);
  const int64_t runs = x.elements() / kRun;
  const int64_t blocks = std::clamp((runs + kThreads - 1) / kThreads, int64_t{1}, kMostBlocks);
  cudaError_t code = Launch(LargestPartsKernel, {.blocks = blocks, .threads = kThreads},
                            queue.stream, static_cast<const Wide*>(x.data), runs, parts);
  if (code != cudaSuccess) return code;
  code = Launch(ScaleKernel, {.threads = kThreads}, queue.stream, Fp8FormatOf(type), parts,
                static_cast<int>(blocks), to);
  if (code != cudaSuccess) return code;
  const Grid tiles = {.blocks = (x.cols + kTile - 1) / kTile,
                      .blocks_y = (x.rows + kTile - 1) / kTile,
                      .threads = kThreads};
  return Launch(type == DType::kE4m3 ? CodesKernel<__NV_E4M3> : CodesKernel<__NV_E5M2>, tiles,
                queue.stream, static_cast<const __nv_bfloat16*>(x.data), x.rows, x.cols, to,
                static_cast<uint8_t*>(codes.data), static_cast<uint8_t*>(transposed.data));
}

}  // namespace weft
