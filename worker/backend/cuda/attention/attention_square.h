// The CUDA cores' attention kernels share what is here: squares of numbers in shared memory, and
// the two products of which attention consists. For .cu files.
//
// A block has 64 rows of its own and walks over others, 64 at a time. It takes heads in slices of
// 64 columns, so that its shared memory is the same for heads of any size. Of each product [64, 64]
// a thread holds 4 rows of 4 numbers in registers, and it fetches four floats at once: 64
// multiply-adds for 8 loads from shared memory.
//
// A thread's rows are those of the 16 threads beside it, which are of one warp: what a warp keeps
// in its rows of a square needs no barrier of the block.
#pragma once
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"

namespace weft {

inline constexpr int kSide = 64;  // of a square; columns of a slice
inline constexpr int kSquareThreads = 256;
inline constexpr int kAcross = 16;                      // threads that share rows
inline constexpr int kDown = kSquareThreads / kAcross;  // rows between a thread's own
inline constexpr int kPartRows = kSide / kDown;         // of a thread
inline constexpr int kPartCols = kSide / kAcross;
static_assert(kPartCols == 4, "a thread's columns of a slice are fetched at once");

// [kSide, kSide] in shared memory. Rows are an odd number of fours long: 8 of neighbouring rows lie
// in banks of their own.
struct Square {
  static constexpr int kStride = kSide + 4;
  float* data;

  __device__ float* at(int row, int col) const { return data + row * kStride + col; }
  __device__ float4 Four(int row, int col) const {
    return *reinterpret_cast<const float4*>(at(row, col));
  }
};
inline constexpr int64_t kSquareBytes = int64_t{kSide} * Square::kStride * 4;

// A thread's part of a product [kSide, kSide].
struct Part {
  float at[kPartRows][kPartCols];
};

// A Part's numbers lie in rows RowOf(i); in columns ColumnOf(j) of scores, in neighbours from
// SliceAt() on of a slice.
__device__ __forceinline__ int RowOf(int i) {
  return static_cast<int>(threadIdx.x) / kAcross + kDown * i;
}
__device__ __forceinline__ int ColumnOf(int j) {
  return static_cast<int>(threadIdx.x) % kAcross + kAcross * j;
}
__device__ __forceinline__ int SliceAt() {
  return static_cast<int>(threadIdx.x) % kAcross * kPartCols;
}

// Over the threads that share rows.
template <typename Combine>
__device__ __forceinline__ float ReduceAcross(Combine combine, float value) {
#pragma unroll
  for (int lanes = kAcross / 2; lanes > 0; lanes /= 2) {
    value = combine(value, __shfl_xor_sync(kAllLanes, value, lanes));
  }
  return value;
}

// A head of up to kSide rows in global memory; rows from `count` on are not there.
template <typename T>
struct HeadRows {
  T* data;
  int stride;  // elements between rows
  int count;
  int dim;
};

// The slice from column `first` on, kWidth elements at once; zeros where nothing is there.
template <int kWidth, typename T>
__device__ __forceinline__ void LoadSlice(const HeadRows<const T>& from, int first,
                                          const Square& to) {
  constexpr int kPacks = kSide / kWidth;  // of a row
  constexpr int kOut = kWidth < 4 ? kWidth : 4;
  constexpr int kStep = kSquareThreads / kPacks;  // rows between a thread's
  const int thread = static_cast<int>(threadIdx.x);
  const int col = thread % kPacks * kWidth;
  const int count = first + col < from.dim ? from.count : 0;
  const T* at = from.data + thread / kPacks * from.stride + first + col;
#pragma unroll 4
  for (int row = thread / kPacks; row < kSide; row += kStep) {
    Pack<T, kWidth> pack = {};
    if (row < count) pack = *reinterpret_cast<const Pack<T, kWidth>*>(at);
    at += kStep * from.stride;
#pragma unroll
    for (int e = 0; e < kWidth; e += kOut) {
      Pack<float, kOut> out;
      for (int i = 0; i < kOut; ++i) out.at[i] = ToFloat(pack.at[e + i]);
      *reinterpret_cast<Pack<float, kOut>*>(to.at(row, col + e)) = out;
    }
  }
}

template <typename T>
__device__ __forceinline__ void StoreSlice(const Part& part, int first, const HeadRows<T>& to) {
  const int col = first + SliceAt();
  using Wide = Pack<T, kPartCols>;
  const bool wide = (to.dim | to.stride) % kPartCols == 0 &&
                    reinterpret_cast<uintptr_t>(to.data) % sizeof(Wide) == 0;
#pragma unroll
  for (int i = 0; i < kPartRows; ++i) {
    if (RowOf(i) >= to.count || col >= to.dim) continue;
    T* const at = to.data + RowOf(i) * to.stride + col;
    if (wide) {
      Wide pack;
      for (int j = 0; j < kPartCols; ++j) pack.at[j] = FromFloat<T>(part.at[i][j]);
      *reinterpret_cast<Wide*>(at) = pack;
    } else {
      for (int j = 0; j < kPartCols && col + j < to.dim; ++j) at[j] = FromFloat<T>(part.at[i][j]);
    }
  }
}

// scores[r][c] += row r of `left` times row c of `right`, over their first `width` columns.
__device__ __forceinline__ void AddProducts(const Square& left, const Square& right, int width,
                                            Part* scores) {
#pragma unroll 1
  for (int d = 0; d < width; d += 4) {
    float4 b[kPartCols];
#pragma unroll
    for (int j = 0; j < kPartCols; ++j) b[j] = right.Four(ColumnOf(j), d);
#pragma unroll
    for (int i = 0; i < kPartRows; ++i) {
      const float4 a = left.Four(RowOf(i), d);
#pragma unroll
      for (int j = 0; j < kPartCols; ++j) {
        float& score = scores->at[i][j];
        score += a.x * b[j].x;
        score += a.y * b[j].y;
        score += a.z * b[j].z;
        score += a.w * b[j].w;
      }
    }
  }
}

// Row r, of the weights' `count` first columns, times the rows of `values`. These sums are short:
// who adds them up to long ones loses less to rounding than one running sum would.
__device__ __forceinline__ Part Weighted(const Square& weights, const Square& values, int count) {
  Part sums = {};
#pragma unroll 1
  for (int c = 0; c < count; c += 4) {
    float4 b[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) b[e] = values.Four(c + e, SliceAt());
#pragma unroll
    for (int i = 0; i < kPartRows; ++i) {
      const float4 a = weights.Four(RowOf(i), c);
      const float w[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        sums.at[i][0] += w[e] * b[e].x;
        sums.at[i][1] += w[e] * b[e].y;
        sums.at[i][2] += w[e] * b[e].z;
        sums.at[i][3] += w[e] * b[e].w;
      }
    }
  }
  return sums;
}

// The block's shared memory: a slice of its own rows, then the weights of the rows that it walks
// over; and a slice of these. kWidth: elements that are read at once; kSlices: of the block's sums,
// one if heads have no more.
template <int kWidth, int kSlices>
struct Squares {
  Square left;
  Square right;

  // Own rows times walked ones, over whole heads.
  template <typename T>
  __device__ __forceinline__ Part Scores(const HeadRows<const T>& own,
                                         const HeadRows<const T>& walked) const {
    Part scores = {};
    const int slices = kSlices == 1 ? 1 : (own.dim + kSide - 1) / kSide;
    for (int slice = 0; slice < slices; ++slice) {
      const int first = slice * kSide;
      __syncthreads();  // nobody reads the slices before any more
      LoadSlice<kWidth>(own, first, left);
      LoadSlice<kWidth>(walked, first, right);
      __syncthreads();
      AddProducts(left, right, min(kSide, own.dim - first), &scores);
    }
    return scores;
  }

  // sums += weights times walked rows, of the slices from column `first` on.
  template <typename T>
  __device__ __forceinline__ void AddWeighted(const Part& weights, const HeadRows<const T>& walked,
                                              int first, Part (&sums)[kSlices]) const {
    __syncwarp();  // nobody reads what these rows held before any more
#pragma unroll
    for (int i = 0; i < kPartRows; ++i) {
#pragma unroll
      for (int j = 0; j < kPartCols; ++j) *left.at(RowOf(i), ColumnOf(j)) = weights.at[i][j];
    }
#pragma unroll
    for (int slice = 0; slice < kSlices; ++slice) {
      const int col = first + slice * kSide;
      if (col >= walked.dim) break;
      __syncthreads();  // nobody reads the slice before any more
      LoadSlice<kWidth>(walked, col, right);
      __syncthreads();
      if (col + SliceAt() >= walked.dim) continue;  // no columns of this thread's
      const Part part = Weighted(left, right, walked.count);
#pragma unroll
      for (int i = 0; i < kPartRows; ++i) {
#pragma unroll
        for (int j = 0; j < kPartCols; ++j) sums[slice].at[i][j] += part.at[i][j];
      }
    }
  }
};

}  // namespace weft
