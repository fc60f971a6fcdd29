// The tensor cores' attention kernels share what is here: tiles in shared memory, the fragments of
// products that they are loaded as, and the two products of which attention consists. For .cu
// files.
//
// A warp owns rows of the block's tile, 16 or several times that. The scores of a warp stay in
// registers: the fragments that a product leaves are, two by two, the left operand of the next.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/cuda/attention/mma.h"
#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/copy_async.h"
#include "worker/backend/cuda/kernels/elements.h"

namespace weft {

inline constexpr int kMmaWarps = 4;
inline constexpr int kMmaThreads = 32 * kMmaWarps;
inline constexpr float kLog2OfE = 1.44269504F;

// [rows, kDim] in shared memory. Eight more elements per row keep the rows of an 8 x 8 matrix out
// of each other's banks.
template <typename T, int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;
  T* data;

  __device__ T* at(int row, int col) const { return data + row * kStride + col; }

  // Begins to copy. Rows from `count` on become zeros: nothing that is not a number comes in by a
  // mask.
  __device__ void Copy(const T* from, int64_t stride, int count, int rows) const {
    constexpr int kWidth = kWidest<T>;
    for (int i = static_cast<int>(threadIdx.x); i < rows * (kDim / kWidth); i += kMmaThreads) {
      const int row = i / (kDim / kWidth);
      const int col = i % (kDim / kWidth) * kWidth;
      const bool is_there = row < count;
      CopyAsync16(at(row, col), is_there ? from + row * stride + col : from, is_there);
    }
  }
};

__device__ __forceinline__ int Lane() {
  return static_cast<int>(threadIdx.x % 32);
}
__device__ __forceinline__ int Group() {
  return Lane() / 4;
}
__device__ __forceinline__ int PairAt() {
  return Lane() % 4 * 2;
}

template <typename T>
__device__ __forceinline__ uint32_t PairOf(T low, T high) {
  union {
    T at[2];
    uint32_t bits;
  } pair = {{low, high}};
  return pair.bits;
}

// a = tile[row..row + 16)[col..col + 16)
template <typename T, int kDim>
__device__ __forceinline__ FragmentA LoadA(const Tile<T, kDim>& tile, int row, int col) {
  FragmentA a;
  LoadMatrices(tile.at(row + Lane() % 16, col + Lane() / 16 * 8), a.at);
  return a;
}
struct TwoFragments {
  FragmentB at[2];
};
__device__ __forceinline__ TwoFragments TwoOf(const uint32_t (&matrices)[4]) {
  return {{{{matrices[0], matrices[1]}}, {{matrices[2], matrices[3]}}}};
}
// b[k][n] = tile[row + n][col + k], of 8 rows and of the next 8: the product with rows of the tile.
template <typename T, int kDim>
__device__ __forceinline__ TwoFragments LoadRowsAsB(const Tile<T, kDim>& tile, int row, int col) {
  uint32_t matrices[4];
  LoadMatrices(tile.at(row + Lane() % 8 + Lane() / 16 * 8, col + Lane() / 8 % 2 * 8), matrices);
  return TwoOf(matrices);
}
// b[k][n] = tile[row + k][col + n], of 8 columns and of the next 8: the product with columns.
template <typename T, int kDim>
__device__ __forceinline__ TwoFragments LoadColumnsAsB(const Tile<T, kDim>& tile, int row,
                                                       int col) {
  uint32_t matrices[4];
  LoadTransposed(tile.at(row + Lane() % 16, col + Lane() / 16 * 8), matrices);
  return TwoOf(matrices);
}
// Two neighbouring results [16, 8] are the left operand [16, 16] of the next product.
template <typename T>
__device__ __forceinline__ FragmentA AsA(const FragmentC& left, const FragmentC& right) {
  const auto pair = [](const FragmentC& c, int i) {
    return PairOf(FromFloat<T>(c.at[i]), FromFloat<T>(c.at[i + 1]));
  };
  return {{pair(left, 0), pair(left, 2), pair(right, 0), pair(right, 2)}};
}

// results[t][16, 8 kCount] = rows [row + 16 t, row + 16 t + 16) of `a` times the rows of `b`.
template <typename T, int kDim, int kTiles, int kCount>
__device__ __forceinline__ void ScoresOf(const Tile<T, kDim>& a, int row, const Tile<T, kDim>& b,
                                         FragmentC (&results)[kTiles][kCount]) {
  for (auto& tile : results) {
    for (FragmentC& result : tile) result = {};
  }
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    FragmentA left[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) left[t] = LoadA(a, row + 16 * t, k);
#pragma unroll
    for (int n = 0; n < kCount; n += 2) {
      const TwoFragments right = LoadRowsAsB(b, 8 * n, k);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        MultiplyAdd<T>(left[t], right.at[0], &results[t][n]);
        MultiplyAdd<T>(left[t], right.at[1], &results[t][n + 1]);
      }
    }
  }
}

// sums[t][16, kDim] += weights[t][16, 8 kCount] times the tile.
template <typename T, int kDim, int kTiles, int kCount>
__device__ __forceinline__ void AddWeighted(const FragmentC (&weights)[kTiles][kCount],
                                            const Tile<T, kDim>& tile,
                                            FragmentC (&sums)[kTiles][kDim / 8]) {
#pragma unroll
  for (int k = 0; k < kCount / 2; ++k) {
    FragmentA left[kTiles];
#pragma unroll
    for (int t = 0; t < kTiles; ++t) left[t] = AsA<T>(weights[t][2 * k], weights[t][2 * k + 1]);
#pragma unroll
    for (int n = 0; n < kDim / 8; n += 2) {
      const TwoFragments right = LoadColumnsAsB(tile, 16 * k, 8 * n);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        MultiplyAdd<T>(left[t], right.at[0], &sums[t][n]);
        MultiplyAdd<T>(left[t], right.at[1], &sums[t][n + 1]);
      }
    }
  }
}

// Writes rows [row, row + 16) of which those below `count` are there, each times factor[0] or, the
// second eight, factor[1].
template <typename T, int kDim>
__device__ __forceinline__ void Store(const FragmentC (&sums)[kDim / 8], const float (&factor)[2],
                                      int row, int count, T* to, int64_t stride) {
  for (int half = 0; half < 2; ++half) {
    const int r = row + Group() + 8 * half;
    if (r >= count) continue;
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      const T low = FromFloat<T>(sums[n].at[2 * half] * factor[half]);
      const T high = FromFloat<T>(sums[n].at[2 * half + 1] * factor[half]);
      *reinterpret_cast<uint32_t*>(to + r * stride + 8 * n + PairAt()) = PairOf(low, high);
    }
  }
}

// Over the four lanes that share a row.
template <typename Combine>
__device__ __forceinline__ float ReduceQuad(Combine combine, float value) {
  value = combine(value, __shfl_xor_sync(kAllLanes, value, 1));
  return combine(value, __shfl_xor_sync(kAllLanes, value, 2));
}

// The block's place in a call.
template <int kRows>
struct TilePlace {
  int64_t sequence;
  int head;     // of queries, or of keys
  int64_t row;  // first of the tile
  int count;    // rows of the tile that are there
  int warp_row;

  __device__ explicit TilePlace(int64_t rows)
      : sequence(blockIdx.z),
        head(static_cast<int>(blockIdx.y)),
        row(static_cast<int64_t>(blockIdx.x) * kRows),
        count(static_cast<int>(min(static_cast<int64_t>(kRows), rows - row))),
        warp_row(static_cast<int>(threadIdx.x / 32) * (kRows / kMmaWarps)) {}
};

// Returns the bytes of a tile of `rows` rows.
template <typename T, int kDim>
int64_t TileBytes(int rows) {
  return int64_t{rows} * Tile<T, kDim>::kStride * static_cast<int64_t>(sizeof(T));
}

inline int64_t TilesOf(int64_t count, int rows) {
  return (count + rows - 1) / rows;
}

}  // namespace weft
