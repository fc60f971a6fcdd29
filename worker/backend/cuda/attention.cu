// Causal attention on the CUDA cores, after FlashAttention-2 (Dao, arXiv:2307.08691), for any head
// size and element type, in single precision: the definition on this device, and the way for shapes
// that the faster kernels do not take.
//
// A block holds a tile of queries and walks over tiles of keys. The gradient has two kernels
// instead of one that adds up dq from many blocks: one walks over keys for dq, one over queries
// for dk and dv. That computes the scores twice, needs no atomics, and gives the same bits again.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "worker/backend/cuda/attention_mma.h"
#include "worker/backend/cuda/attention_tile.h"
#include "worker/backend/cuda/block_reduce.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr float kNothing = -1e30F;  // lower than any score: no key was seen

// A tile of rows in shared memory; one more column keeps threads out of each other's banks.
struct Rows {
  float* data;
  int stride;
  __device__ float* operator[](int row) const { return data + row * stride; }
};

// Hands out parts of the block's dynamic shared memory.
struct SharedParts {
  float* next;
  __device__ Rows Take(int rows, int cols) {
    const Rows taken = {next, cols + 1};
    next += rows * (cols + 1);
    return taken;
  }
};

template <typename T>
__device__ void LoadRows(const T* from, int64_t stride, int count, int rows, int dim,
                         const Rows& to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * dim; i += kThreads) {
    const int row = i / dim;
    to[row][i % dim] = row < count ? ToFloat(from[row * stride + i % dim]) : 0.0F;
  }
}

__device__ void Clear(int rows, int dim, const Rows& x) {
  for (int i = static_cast<int>(threadIdx.x); i < rows * dim; i += kThreads)
    x[i / dim][i % dim] = 0;
}

__device__ float DotOf(const float* x, const float* y, int dim) {
  float sum = 0;
  for (int d = 0; d < dim; ++d) sum += x[d] * y[d];
  return sum;
}

// to[r][d] = factor[r] * to[r][d] + sum over c of weights[r][c] * rows[c][d]; no factors: 1.
template <int kTile>
__device__ void AddWeighted(const Rows& weights, const Rows& rows, int dim, const float* factors,
                            const Rows& to) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * dim; i += kThreads) {
    const int row = i / dim;
    const int d = i % dim;
    float sum = 0;
    for (int c = 0; c < kTile; ++c) sum += weights[row][c] * rows[c][d];
    to[row][d] = (factors == nullptr ? to[row][d] : factors[row] * to[row][d]) + sum;
  }
}

// to[c][d] += sum over r of weights[r][c] * rows[r][d].
template <int kTile>
__device__ void AddWeightedByColumn(const Rows& weights, const Rows& rows, int dim,
                                    const Rows& to) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * dim; i += kThreads) {
    const int c = i / dim;
    const int d = i % dim;
    float sum = 0;
    for (int row = 0; row < kTile; ++row) sum += weights[row][c] * rows[row][d];
    to[c][d] += sum;
  }
}

// What the softmax of each row knows so far: greatest score, sum of exp(score - highest), and what
// everything summed before has to be multiplied by.
template <int kTile>
struct SoftmaxRows {
  float highest[kTile];
  float total[kTile];
  float correction[kTile];

  __device__ void Clear() {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kTile) return;
    highest[row] = kNothing;
    total[row] = 0;
  }

  // scores become exp(score - highest). A warp takes a row, a lane a key.
  __device__ void Take(const Rows& scores) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    for (int row = static_cast<int>(threadIdx.x / 32); row < kTile; row += kWarps) {
      const float score = lane < kTile ? scores[row][lane] : kNothing;
      const float before = highest[row];
      const float now = fmaxf(before, ReduceWarp(MaxOf{}, score));
      const float p = score <= kNothing ? 0.0F : expf(score - now);
      const float sum = ReduceWarp(SumOf{}, p);
      if (lane < kTile) scores[row][lane] = p;
      if (lane == 0) {
        correction[row] = before > kNothing ? expf(before - now) : 0.0F;
        total[row] = total[row] * correction[row] + sum;
        highest[row] = now;
      }
      __syncwarp();
    }
  }
};

template <typename T, int kTile>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(AttentionCall call, const T* q, const T* k, const T* v, T* o, float* lse) {
  __shared__ VisibleKeys<kTile> visible;
  __shared__ SoftmaxRows<kTile> softmax;
  const int dim = call.dim;
  SharedParts shared = {DynamicShared<float>()};
  const Rows q_rows = shared.Take(kTile, dim);
  const Rows k_rows = shared.Take(kTile, dim);
  const Rows v_rows = shared.Take(kTile, dim);
  const Rows o_rows = shared.Take(kTile, dim);
  const Rows scores = shared.Take(kTile, kTile);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (call.heads / call.kv_heads);
  const int64_t sequence = blockIdx.z;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kTile), call.query_len - first_row));
  visible.Load(call, sequence, first_row);
  softmax.Clear();
  Clear(kTile, dim, o_rows);
  LoadRows(q + call.QueryAt(sequence, first_row, head), call.query_stride(), rows, kTile, dim,
           q_rows);
  __syncthreads();
  const int64_t end = visible.end;
  for (int64_t key = visible.begin / kTile * kTile; key < end; key += kTile) {
    const int keys = static_cast<int>(min(static_cast<int64_t>(kTile), call.seq_len - key));
    const int64_t at = call.KeyAt(sequence, key, kv_head);
    LoadRows(k + at, call.key_stride(), keys, kTile, dim, k_rows);
    LoadRows(v + at, call.key_stride(), keys, kTile, dim, v_rows);
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
      const int row = i / kTile;
      const int c = i % kTile;
      scores[row][c] =
          visible.Has(row, key + c) ? call.scale * DotOf(q_rows[row], k_rows[c], dim) : kNothing;
    }
    __syncthreads();
    softmax.Take(scores);
    __syncthreads();
    AddWeighted<kTile>(scores, v_rows, dim, softmax.correction, o_rows);
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < rows * dim; i += kThreads) {
    const int row = i / dim;
    o[call.QueryAt(sequence, first_row + row, head) + i % dim] =
        FromFloat<T>(o_rows[row][i % dim] / softmax.total[row]);
  }
  const int row = static_cast<int>(threadIdx.x);
  if (row < rows) {
    lse[call.StatisticAt(sequence, first_row + row, head)] =
        softmax.highest[row] + logf(softmax.total[row]);
  }
}

// deltas = sums of dO * O, which are those of P * dP; a warp per row of a head.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DeltaKernel(AttentionCall call, const T* o, const T* dout, float* deltas) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / 32;
  if (row >= call.query_len) return;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t at = call.QueryAt(blockIdx.z, row, head);
  double sum = 0;
  for (int d = static_cast<int>(threadIdx.x % 32); d < call.dim; d += 32) {
    sum += static_cast<double>(ToFloat(dout[at + d])) * static_cast<double>(ToFloat(o[at + d]));
  }
  sum = ReduceWarp(SumOf{}, sum);
  if (threadIdx.x % 32 == 0) {
    deltas[call.StatisticAt(blockIdx.z, row, head)] = static_cast<float>(sum);
  }
}

// p[r][c] = probability, ds[r][c] = scale * p * (dp - delta) with dp = dO . V; 0 where not visible.
template <int kTile>
__device__ void ScoreGradients(const AttentionCall& call, const VisibleKeys<kTile>& visible,
                               int64_t key, const float* statistics, const float* deltas, int rows,
                               const Rows& q_rows, const Rows& dout_rows, const Rows& k_rows,
                               const Rows& v_rows, const Rows& p, const Rows& ds) {
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kTile; i += kThreads) {
    const int row = i / kTile;
    const int c = i % kTile;
    float probability = 0;
    float gradient = 0;
    if (row < rows && visible.Has(row, key + c)) {
      probability = expf(call.scale * DotOf(q_rows[row], k_rows[c], call.dim) - statistics[row]);
      gradient =
          call.scale * probability * (DotOf(dout_rows[row], v_rows[c], call.dim) - deltas[row]);
    }
    p[row][c] = probability;
    ds[row][c] = gradient;
  }
}

template <typename T, int kTile>
__global__ void __launch_bounds__(kThreads)
    QueryGradientKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kTile> visible;
  const int dim = call.dim;
  SharedParts shared = {DynamicShared<float>()};
  const Rows q_rows = shared.Take(kTile, dim);
  const Rows dout_rows = shared.Take(kTile, dim);
  const Rows k_rows = shared.Take(kTile, dim);
  const Rows v_rows = shared.Take(kTile, dim);
  const Rows dq_rows = shared.Take(kTile, dim);
  const Rows p = shared.Take(kTile, kTile);
  const Rows ds = shared.Take(kTile, kTile);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile;
  const int head = static_cast<int>(blockIdx.y);
  const int kv_head = head / (call.heads / call.kv_heads);
  const int64_t sequence = blockIdx.z;
  const int rows = static_cast<int>(min(static_cast<int64_t>(kTile), call.query_len - first_row));
  const int64_t query_at = call.QueryAt(sequence, first_row, head);
  const int64_t statistic = call.StatisticAt(sequence, first_row, head);
  visible.Load(call, sequence, first_row);
  Clear(kTile, dim, dq_rows);
  LoadRows(arrays.q + query_at, call.query_stride(), rows, kTile, dim, q_rows);
  LoadRows(arrays.dout + query_at, call.query_stride(), rows, kTile, dim, dout_rows);
  __syncthreads();
  const int64_t end = visible.end;
  for (int64_t key = visible.begin / kTile * kTile; key < end; key += kTile) {
    const int keys = static_cast<int>(min(static_cast<int64_t>(kTile), call.seq_len - key));
    const int64_t at = call.KeyAt(sequence, key, kv_head);
    LoadRows(arrays.k + at, call.key_stride(), keys, kTile, dim, k_rows);
    LoadRows(arrays.v + at, call.key_stride(), keys, kTile, dim, v_rows);
    __syncthreads();
    ScoreGradients<kTile>(call, visible, key, arrays.lse + statistic, arrays.deltas + statistic,
                          rows, q_rows, dout_rows, k_rows, v_rows, p, ds);
    __syncthreads();
    AddWeighted<kTile>(ds, k_rows, dim, nullptr, dq_rows);
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < rows * dim; i += kThreads) {
    const int row = i / dim;
    arrays.dq[query_at + row * call.query_stride() + i % dim] = FromFloat<T>(dq_rows[row][i % dim]);
  }
}

// Adds up the query heads that share a key head, in their order.
template <typename T, int kTile>
__global__ void __launch_bounds__(kThreads)
    KeyGradientKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kTile> visible;
  const int dim = call.dim;
  SharedParts shared = {DynamicShared<float>()};
  const Rows q_rows = shared.Take(kTile, dim);
  const Rows dout_rows = shared.Take(kTile, dim);
  const Rows k_rows = shared.Take(kTile, dim);
  const Rows v_rows = shared.Take(kTile, dim);
  const Rows dk_rows = shared.Take(kTile, dim);
  const Rows dv_rows = shared.Take(kTile, dim);
  const Rows p = shared.Take(kTile, kTile);
  const Rows ds = shared.Take(kTile, kTile);
  const int64_t key = static_cast<int64_t>(blockIdx.x) * kTile;
  const int kv_head = static_cast<int>(blockIdx.y);
  const int64_t sequence = blockIdx.z;
  const int keys = static_cast<int>(min(static_cast<int64_t>(kTile), call.seq_len - key));
  const int64_t key_at = call.KeyAt(sequence, key, kv_head);
  const int heads_per_kv = call.heads / call.kv_heads;
  LoadRows(arrays.k + key_at, call.key_stride(), keys, kTile, dim, k_rows);
  LoadRows(arrays.v + key_at, call.key_stride(), keys, kTile, dim, v_rows);
  Clear(kTile, dim, dk_rows);
  Clear(kTile, dim, dv_rows);
  for (int64_t first_row = 0; first_row < call.query_len; first_row += kTile) {
    __syncthreads();
    visible.Load(call, sequence, first_row);
    __syncthreads();
    if (visible.end <= key || visible.begin >= key + kTile) continue;  // none of these
    const int rows = static_cast<int>(min(static_cast<int64_t>(kTile), call.query_len - first_row));
    for (int head = kv_head * heads_per_kv; head < (kv_head + 1) * heads_per_kv; ++head) {
      const int64_t query_at = call.QueryAt(sequence, first_row, head);
      const int64_t statistic = call.StatisticAt(sequence, first_row, head);
      LoadRows(arrays.q + query_at, call.query_stride(), rows, kTile, dim, q_rows);
      LoadRows(arrays.dout + query_at, call.query_stride(), rows, kTile, dim, dout_rows);
      __syncthreads();
      ScoreGradients<kTile>(call, visible, key, arrays.lse + statistic, arrays.deltas + statistic,
                            rows, q_rows, dout_rows, k_rows, v_rows, p, ds);
      __syncthreads();
      AddWeightedByColumn<kTile>(p, dout_rows, dim, dv_rows);
      AddWeightedByColumn<kTile>(ds, q_rows, dim, dk_rows);
      __syncthreads();
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < keys * dim; i += kThreads) {
    const int row = i / dim;
    const int64_t at = key_at + row * call.key_stride() + i % dim;
    arrays.dk[at] = FromFloat<T>(dk_rows[row][i % dim]);
    arrays.dv[at] = FromFloat<T>(dv_rows[row][i % dim]);
  }
}

// Floats of `parts` tiles of rows and `squares` tiles of scores.
int64_t SharedBytes(int tile, int64_t dim, int parts, int squares) {
  return 4 * (parts * tile * (dim + 1) + int64_t{squares} * tile * (tile + 1));
}

int64_t Tiles(int64_t count, int tile) {
  return (count + tile - 1) / tile;
}

template <typename T, int kTile>
cudaError_t Forward(const Queue& queue, const AttentionShape& shape,
                    const AttentionTensors& tensors) {
  const AttentionCall call = CallOf(shape, tensors.first_visible);
  return Launch(AttentionKernel<T, kTile>,
                {.blocks = Tiles(call.query_len, kTile),
                 .blocks_y = shape.heads,
                 .blocks_z = shape.batch,
                 .threads = kThreads,
                 .shared_bytes = SharedBytes(kTile, shape.head_dim, 4, 1)},
                queue.stream, call, static_cast<const T*>(tensors.q.data),
                static_cast<const T*>(tensors.k.data), static_cast<const T*>(tensors.v.data),
                static_cast<T*>(tensors.o.data), static_cast<float*>(tensors.lse.data));
}

template <typename T, int kTile>
cudaError_t Backward(const Queue& queue, const AttentionShape& shape,
                     const AttentionTensors& tensors, const AttentionGradientTensors& gradients) {
  const AttentionCall call = CallOf(shape, tensors.first_visible);
  const int64_t statistics = shape.batch * shape.heads * call.query_len;
  if (statistics * 4 > queue.scratch_bytes) return cudaErrorMemoryAllocation;
  auto* const deltas = static_cast<float*>(queue.scratch);
  const auto* const dout = static_cast<const T*>(gradients.dout.data);
  const AttentionGradientArrays<T> arrays = {
      static_cast<const T*>(tensors.q.data),       static_cast<const T*>(tensors.k.data),
      static_cast<const T*>(tensors.v.data),       dout,
      static_cast<const float*>(tensors.lse.data), deltas,
      static_cast<T*>(gradients.dq.data),          static_cast<T*>(gradients.dk.data),
      static_cast<T*>(gradients.dv.data)};
  Grid grid = {.blocks = Tiles(call.query_len, kWarps),
               .blocks_y = shape.heads,
               .blocks_z = shape.batch,
               .threads = kThreads};
  cudaError_t code = Launch(DeltaKernel<T>, grid, queue.stream, call,
                            static_cast<const T*>(tensors.o.data), dout, deltas);
  if (code != cudaSuccess) return code;
  if constexpr (!std::is_same_v<T, float>) {
    if (HasMmaAttention(shape, tensors.q.dtype)) {
      return QueueMmaAttentionGradient(queue, shape, call, arrays);
    }
  }
  grid.blocks = Tiles(call.query_len, kTile);
  grid.shared_bytes = SharedBytes(kTile, shape.head_dim, 5, 2);
  code = Launch(QueryGradientKernel<T, kTile>, grid, queue.stream, call, arrays);
  if (code != cudaSuccess) return code;
  grid.blocks = Tiles(shape.seq_len, kTile);
  grid.blocks_y = shape.kv_heads;
  grid.shared_bytes = SharedBytes(kTile, shape.head_dim, 6, 2);
  return Launch(KeyGradientKernel<T, kTile>, grid, queue.stream, call, arrays);
}

// A tile of 32 rows fits the shared memory of every target up to here.
constexpr int64_t kLargestDimOfWideTile = 64;

}  // namespace

AttentionCall CallOf(const AttentionShape& shape, View first_visible) {
  return {.seq_len = shape.seq_len,
          .query_len = shape.query_len(),
          .run_len = shape.run_len(),
          .piece = {shape.piece[0], shape.piece[1]},
          .first_visible = static_cast<const int32_t*>(first_visible.data),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .dim = static_cast<int>(shape.head_dim),
          .scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)))};
}

cudaError_t QueueAttention(const Queue& queue, const AttentionShape& shape,
                           const AttentionTensors& tensors) {
  if (HasMmaAttention(shape, tensors.q.dtype)) return QueueMmaAttention(queue, shape, tensors);
  return WithType(tensors.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (shape.head_dim <= kLargestDimOfWideTile) return Forward<T, 32>(queue, shape, tensors);
    return Forward<T, 16>(queue, shape, tensors);
  });
}

cudaError_t QueueAttentionGradient(const Queue& queue, const AttentionShape& shape,
                                   const AttentionTensors& tensors,
                                   const AttentionGradientTensors& gradients) {
  return WithType(tensors.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (shape.head_dim <= kLargestDimOfWideTile) {
      return Backward<T, 32>(queue, shape, tensors, gradients);
    }
    return Backward<T, 16>(queue, shape, tensors, gradients);
  });
}

}  // namespace weft
