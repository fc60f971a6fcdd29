// The attention kernels share what is here: which rows and keys a tile has, and which keys a query
// sees.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/device.h"

namespace weft {

// One call, for kernels. Query row r of a sequence lies at position PositionOf(r).
struct AttentionCall {
  int64_t seq_len;    // T keys
  int64_t query_len;  // Tq
  int64_t run_len;
  int64_t piece[2];
  const int32_t* first_visible;  // null: all see from the first key
  int64_t query_stride;          // elements between neighbouring rows of q and of its gradient
  int64_t key_stride;            // of k and v and their gradients
  int heads;
  int kv_heads;
  int dim;
  float scale;
  float cap;  // of scaled scores; 0: none

  __device__ int64_t PositionOf(int64_t row) const {
    return row < run_len ? piece[0] * run_len + row : piece[1] * run_len + row - run_len;
  }
  // First key that the query of row `row` of `sequence` sees.
  __device__ int64_t FirstKeyOf(int64_t sequence, int64_t row) const {
    return first_visible == nullptr ? 0 : first_visible[sequence * query_len + row];
  }
  // The same of o and of its gradient.
  __device__ int64_t output_stride() const { return static_cast<int64_t>(heads) * dim; }
  // Where a head of a row starts.
  __device__ int64_t QueryAt(int64_t sequence, int64_t row, int head) const {
    return (sequence * query_len + row) * query_stride + static_cast<int64_t>(head) * dim;
  }
  __device__ int64_t OutputAt(int64_t sequence, int64_t row, int head) const {
    return (sequence * query_len + row) * output_stride() + static_cast<int64_t>(head) * dim;
  }
  __device__ int64_t KeyAt(int64_t sequence, int64_t key, int kv_head) const {
    return (sequence * seq_len + key) * key_stride + static_cast<int64_t>(kv_head) * dim;
  }
  // A product's share of the cap, in (-1, 1). REQUIRES: there is one.
  __device__ float ShareOfCap(float product) const { return tanhf(scale / cap * product); }
  // The same to 1e-6 of the cap: for scores of elements of 16 bits.
  __device__ float RoughShareOfCap(float product) const {
    constexpr float kTwiceLog2OfE = 2.88539008F;
    const float power = exp2f(kTwiceLog2OfE * scale / cap * product);
    return 1.0F - __fdividef(2.0F, 1.0F + power);
  }
  // In lse and in the sums of dO * O.
  __device__ int64_t StatisticAt(int64_t sequence, int64_t row, int head) const {
    return (sequence * heads + head) * query_len + row;
  }
};

// The keys [first, last] that each of a tile's kRows queries sees, and [begin, end), in which all
// of these lie. Rows beyond the last query see none.
template <int kRows>
struct VisibleKeys {
  static_assert(kRows <= 32 || kRows % 32 == 0);
  int first[kRows];
  int last[kRows];
  int begin;
  int end;

  // By the first warp of the block; a barrier must follow.
  __device__ void Load(const AttentionCall& call, int64_t sequence, int64_t first_row) {
    const int lane = static_cast<int>(threadIdx.x);
    if (lane >= 32) return;
    int lowest = INT32_MAX;
    int highest = -1;
    for (int row = lane; row < kRows; row += 32) {
      const int64_t at = first_row + row;
      const bool here = at < call.query_len;
      first[row] = here ? static_cast<int>(call.FirstKeyOf(sequence, at)) : INT32_MAX;
      last[row] = here ? static_cast<int>(call.PositionOf(at)) : -1;
      lowest = LeastOf{}(lowest, first[row]);
      highest = GreatestOf{}(highest, last[row]);
    }
    lowest = ReduceWarp(LeastOf{}, lowest);
    highest = ReduceWarp(GreatestOf{}, highest);
    if (lane == 0) {
      begin = lowest;
      end = highest + 1;
    }
  }
  __device__ bool Has(int row, int64_t key) const { return key >= first[row] && key <= last[row]; }
};

// The gradient's kernels read and write these; deltas are the sums of dO * O, by query and head.
template <typename T>
struct AttentionGradientArrays {
  const T *q, *k, *v, *dout;
  const float *lse, *deltas;
  T *dq, *dk, *dv;
};

AttentionCall CallOf(const AttentionShape& shape, View first_visible);

}  // namespace weft
