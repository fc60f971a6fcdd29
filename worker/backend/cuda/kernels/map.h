// Map: out[i] = f(in[i]) for arrays of one element type, several in and several out, in float. An
// output may be one of the inputs.
#pragma once
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {

inline constexpr int kMapThreads = 256;
// Enough blocks to fill any device; longer arrays go round.
inline constexpr int64_t kMostMapBlocks = 132 * 16;

inline int64_t MapBlocks(int64_t count) {
  return std::min(kMostMapBlocks, (count + kMapThreads - 1) / kMapThreads);
}

__device__ __forceinline__ int64_t FirstIndex() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t IndexStride() {
  return static_cast<int64_t>(gridDim.x) * blockDim.x;
}

// An F may have a Begin(), which each thread calls first; where it returns false, nothing is done.
template <typename F, typename = void>
struct HasBegin : std::false_type {};
template <typename F>
struct HasBegin<F, std::void_t<decltype(std::declval<F&>().Begin())>> : std::true_type {};

template <typename T, int kIn, int kOut>
struct MapArrays {
  const T* in[kIn];
  T* out[kOut];
};

template <typename T, int kWidth, int kIn, int kOut, typename F>
__device__ __forceinline__ void MapPacks(F& f, const Pack<T, kWidth> (&in)[kIn],
                                         Pack<T, kWidth> (&out)[kOut]) {
  for (int e = 0; e < kWidth; ++e) {
    float x[kIn];
    float y[kOut];
    for (int j = 0; j < kIn; ++j) x[j] = ToFloat(in[j].at[e]);
    f(x, y);
    for (int j = 0; j < kOut; ++j) out[j].at[e] = FromFloat<T>(y[j]);
  }
}

template <typename T, int kWidth, int kIn, int kOut, typename F>
__global__ void MapKernel(F f, MapArrays<T, kIn, kOut> arrays, int64_t packs) {
  using Wide = Pack<T, kWidth>;
  if constexpr (HasBegin<F>::value) {
    if (!f.Begin()) return;
  }
  for (int64_t i = FirstIndex(); i < packs; i += IndexStride()) {
    Wide in[kIn];
    Wide out[kOut];
    for (int j = 0; j < kIn; ++j) in[j] = reinterpret_cast<const Wide*>(arrays.in[j])[i];
    MapPacks<T>(f, in, out);
    for (int j = 0; j < kOut; ++j) reinterpret_cast<Wide*>(arrays.out[j])[i] = out[j];
  }
}

// The same of matrices whose rows are `stride` packs apart. Blocks take rows in turn, so that no
// thread divides.
template <typename T, int kIn, int kOut>
struct MapMatrices {
  MapArrays<T, kIn, kOut> arrays;
  int64_t in_stride[kIn];
  int64_t out_stride[kOut];
};

template <typename T, int kWidth, int kIn, int kOut, typename F>
__global__ void MapRowsKernel(F f, MapMatrices<T, kIn, kOut> matrices, int64_t rows,
                              int64_t packs) {
  using Wide = Pack<T, kWidth>;
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    for (int64_t i = FirstIndex(); i < packs; i += IndexStride()) {
      Wide in[kIn];
      Wide out[kOut];
      for (int j = 0; j < kIn; ++j) {
        in[j] =
            reinterpret_cast<const Wide*>(matrices.arrays.in[j])[row * matrices.in_stride[j] + i];
      }
      MapPacks<T>(f, in, out);
      for (int j = 0; j < kOut; ++j) {
        reinterpret_cast<Wide*>(matrices.arrays.out[j])[row * matrices.out_stride[j] + i] = out[j];
      }
    }
  }
}

// In accesses of 16 bytes where all arrays allow that.
template <typename T, int kIn, int kOut, typename F>
cudaError_t Map(cudaStream_t stream, F f, const MapArrays<T, kIn, kOut>& arrays, int64_t count) {
  constexpr int kWidth = kWidest<T>;
  const bool wide = count % kWidth == 0 &&
                    std::all_of(std::begin(arrays.in), std::end(arrays.in), IsWide) &&
                    std::all_of(std::begin(arrays.out), std::end(arrays.out), IsWide);
  const int64_t packs = wide ? count / kWidth : count;
  const Grid grid = {.blocks = MapBlocks(packs), .threads = kMapThreads};
  if (wide) return Launch(MapKernel<T, kWidth, kIn, kOut, F>, grid, stream, f, arrays, packs);
  return Launch(MapKernel<T, 1, kIn, kOut, F>, grid, stream, f, arrays, packs);
}

// Maps views of the same rows and columns, each of which may be columns of a wider matrix.
template <typename T, int kIn, int kOut, typename F>
cudaError_t MapRows(cudaStream_t stream, F f, const View (&in)[kIn], const View (&out)[kOut]) {
  const auto all_of = [&](const auto& holds) {
    return std::all_of(std::begin(in), std::end(in), holds) &&
           std::all_of(std::begin(out), std::end(out), holds);
  };
  MapMatrices<T, kIn, kOut> matrices = {};
  for (int j = 0; j < kIn; ++j) matrices.arrays.in[j] = static_cast<const T*>(in[j].data);
  for (int j = 0; j < kOut; ++j) matrices.arrays.out[j] = static_cast<T*>(out[j].data);
  const View shape = out[0];
  if (all_of([](const View& x) { return x.is_contiguous(); })) {
    return Map<T, kIn, kOut>(stream, f, matrices.arrays, shape.elements());
  }
  const bool wide = all_of([](const View& x) { return HasWideRows<T>(x); });
  const int64_t width = wide ? kWidest<T> : 1;
  for (int j = 0; j < kIn; ++j) matrices.in_stride[j] = in[j].stride() / width;
  for (int j = 0; j < kOut; ++j) matrices.out_stride[j] = out[j].stride() / width;
  const int64_t packs = shape.cols / width;
  const int64_t blocks = MapBlocks(packs);
  if (blocks == 0) return cudaSuccess;
  const Grid grid = {
      .blocks = blocks,
      .blocks_y = std::min(shape.rows, std::max<int64_t>(1, kMostMapBlocks / blocks)),
      .threads = kMapThreads};
  if (wide) {
    return Launch(MapRowsKernel<T, kWidest<T>, kIn, kOut, F>, grid, stream, f, matrices, shape.rows,
                  packs);
  }
  return Launch(MapRowsKernel<T, 1, kIn, kOut, F>, grid, stream, f, matrices, shape.rows, packs);
}

}  // namespace weft
