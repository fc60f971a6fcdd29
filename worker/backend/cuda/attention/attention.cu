// Causal attention on the CUDA cores, after FlashAttention-2 (Dao, arXiv:2307.08691), for any head
// size and element type, in single precision: the definition on this device, and the way for shapes
// that the faster kernels do not take.
//
// A block holds 64 queries and walks over keys. The gradient has two kernels instead of one that
// adds up dq from many blocks: one walks over keys for dq, one over queries for dk and dv. That
// computes the scores twice, needs no atomics, and gives the same bits again.
//
// A block's sums stay in registers, 128 columns of a head at most: a head that has more is shared
// among several blocks, which compute its scores once each.
#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <type_traits>

#include "worker/backend/cuda/attention/attention_mma.h"
#include "worker/backend/cuda/attention/attention_square.h"
#include "worker/backend/cuda/attention/attention_tile.h"
#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {
namespace {

constexpr int kDeltaThreads = 256;
constexpr int kLanesOfRow = 8;  // a row of 64 elements of 16 bits is 8 accesses
constexpr int kDeltaRows = kDeltaThreads / kLanesOfRow;
constexpr int kBlocksAtOnce = 2;  // of squares, on a multiprocessor: 128 registers for each thread
constexpr float kNothing = -1e30F;  // lower than any score: no key was seen

template <int kWidth, int kSlices>
__device__ Squares<kWidth, kSlices> SharedSquares() {
  auto* const shared = DynamicShared<float>();
  return {{shared}, {shared + kSquareBytes / 4}};
}

// Blocks that share a head, each with kSlices slices of its columns. REQUIRES: of one slice, all.
template <int kSlices>
__host__ __device__ int BlocksOfHead(int64_t dim) {
  constexpr int kCols = kSlices * kSide;
  return kSlices == 1 ? 1 : static_cast<int>((dim + kCols - 1) / kCols);
}

// The block's place in a call. Positions are counted in 32 bits, as those of visible keys are.
template <int kSlices>
struct Place {
  int64_t sequence;
  int head;    // of queries, or of keys
  int row;     // first of the block's
  int count;   // rows that are there
  int column;  // of a head: first that this block sums

  __device__ Place(int64_t rows, int dim)
      : sequence(blockIdx.z),
        head(static_cast<int>(blockIdx.y)),
        row(static_cast<int>(blockIdx.x) / BlocksOfHead<kSlices>(dim) * kSide),
        count(min(kSide, static_cast<int>(rows) - row)),
        column(static_cast<int>(blockIdx.x) % BlocksOfHead<kSlices>(dim) * kSlices * kSide) {}
};

// Rows of a head of q, of o (or dO), and of k (or v), from a place in it on.
template <typename T>
__device__ HeadRows<T> QueryRows(const AttentionCall& call, T* x, int64_t sequence, int row,
                                 int head) {
  return {x + call.QueryAt(sequence, row, head), static_cast<int>(call.query_stride),
          min(kSide, static_cast<int>(call.query_len) - row), call.dim};
}
template <typename T>
__device__ HeadRows<T> OutputRows(const AttentionCall& call, T* x, int64_t sequence, int row,
                                  int head) {
  return {x + call.OutputAt(sequence, row, head), static_cast<int>(call.output_stride()),
          min(kSide, static_cast<int>(call.query_len) - row), call.dim};
}
template <typename T>
__device__ HeadRows<T> KeyRows(const AttentionCall& call, T* x, int64_t sequence, int key,
                               int kv_head) {
  return {x + call.KeyAt(sequence, key, kv_head), static_cast<int>(call.key_stride),
          min(kSide, static_cast<int>(call.seq_len) - key), call.dim};
}

// Holds what the softmax of a thread's rows knows so far: greatest score, sum of exp(score -
// highest).
struct SoftmaxRows {
  float highest[kPartRows];
  float total[kPartRows];

  __device__ SoftmaxRows() {
    for (int i = 0; i < kPartRows; ++i) {
      highest[i] = kNothing;
      total[i] = 0;
    }
  }

  // Scores become exp(score - highest); the sums of what they weighted so far are rescaled.
  template <int kSlices>
  __device__ __forceinline__ void Take(Part* scores, Part (&sums)[kSlices]) {
#pragma unroll
    for (int i = 0; i < kPartRows; ++i) {
      float most = kNothing;
      for (const float score : scores->at[i]) most = MaxOf{}(most, score);
      const float before = highest[i];
      const float now = fmaxf(before, ReduceAcross(MaxOf{}, most));
      float sum = 0;
      for (float& score : scores->at[i]) {
        score = score <= kNothing ? 0.0F : expf(score - now);
        sum += score;
      }
      const float correction = before > kNothing ? expf(before - now) : 0.0F;
      total[i] = total[i] * correction + ReduceAcross(SumOf{}, sum);
      highest[i] = now;
      for (Part& part : sums) {
        for (float& kept : part.at[i]) kept *= correction;
      }
    }
  }
};

template <typename T, int kWidth, int kSlices>
__global__ void __launch_bounds__(kSquareThreads, kBlocksAtOnce)
    AttentionKernel(AttentionCall call, const T* q, const T* k, const T* v, T* o, float* lse) {
  __shared__ VisibleKeys<kSide> visible;
  const auto squares = SharedSquares<kWidth, kSlices>();
  const Place<kSlices> place(call.query_len, call.dim);
  const int kv_head = place.head / (call.heads / call.kv_heads);
  const auto queries = QueryRows(call, q, place.sequence, place.row, place.head);
  visible.Load(call, place.sequence, place.row);
  __syncthreads();
  SoftmaxRows softmax;
  Part sums[kSlices] = {};
  const int end = visible.end;
  for (int key = visible.begin / kSide * kSide; key < end; key += kSide) {
    Part scores = squares.Scores(queries, KeyRows(call, k, place.sequence, key, kv_head));
#pragma unroll
    for (int i = 0; i < kPartRows; ++i) {
#pragma unroll
      for (int j = 0; j < kPartCols; ++j) {
        const float score = call.cap > 0 ? call.cap * call.ShareOfCap(scores.at[i][j])
                                         : call.scale * scores.at[i][j];
        scores.at[i][j] = visible.Has(RowOf(i), key + ColumnOf(j)) ? score : kNothing;
      }
    }
    softmax.Take(&scores, sums);
    squares.AddWeighted(scores, KeyRows(call, v, place.sequence, key, kv_head), place.column, sums);
  }
  const auto out = OutputRows(call, o, place.sequence, place.row, place.head);
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    for (int i = 0; i < kPartRows; ++i) {
      for (float& sum : sums[slice].at[i]) sum /= softmax.total[i];
    }
    StoreSlice(sums[slice], place.column + slice * kSide, out);
  }
  if (place.column > 0 || ColumnOf(0) > 0) return;
#pragma unroll
  for (int i = 0; i < kPartRows; ++i) {
    if (RowOf(i) < place.count) {
      lse[call.StatisticAt(place.sequence, place.row + RowOf(i), place.head)] =
          softmax.highest[i] + logf(softmax.total[i]);
    }
  }
}

// deltas = sums of dO * O, which are those of P * dP; kLanesOfRow threads per row of a head, each
// with kWidth elements at a time.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kDeltaThreads)
    DeltaKernel(AttentionCall call, const T* o, const T* dout, float* deltas) {
  using Wide = Pack<T, kWidth>;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kDeltaRows + threadIdx.x / kLanesOfRow;
  const bool is_there = row < call.query_len;
  const int head = static_cast<int>(blockIdx.y);
  const int lane = static_cast<int>(threadIdx.x % kLanesOfRow);
  const int64_t at = call.OutputAt(blockIdx.z, row, head);
  double sum = 0;
  for (int d = lane * kWidth; is_there && d < call.dim; d += kLanesOfRow * kWidth) {
    const Wide left = *reinterpret_cast<const Wide*>(dout + at + d);
    const Wide right = *reinterpret_cast<const Wide*>(o + at + d);
    for (int e = 0; e < kWidth; ++e) {
      sum += static_cast<double>(ToFloat(left.at[e])) * static_cast<double>(ToFloat(right.at[e]));
    }
  }
  for (int lanes = kLanesOfRow / 2; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, lanes);
  }
  if (is_there && lane == 0) {
    deltas[call.StatisticAt(blockIdx.z, row, head)] = static_cast<float>(sum);
  }
}

// Holds what is known of the queries of a tile; it lies in shared memory.
struct Statistics {
  float lse[kSide];
  float deltas[kSide];

  // A barrier must follow.
  template <typename T>
  __device__ void Load(const AttentionGradientArrays<T>& arrays, int64_t first, int count) {
    const int row = static_cast<int>(threadIdx.x);
    if (row >= kSide) return;
    lse[row] = row < count ? arrays.lse[first + row] : 0.0F;
    deltas[row] = row < count ? arrays.deltas[first + row] : 0.0F;
  }
};

// scores and dp become p = probabilities and scale * p * (dp - delta), the latter times the cap's
// slope; 0 where nothing is seen.
// `seen` and `query`, which is the query of a score, are asked by its place in the thread's part.
template <typename Seen, typename Query>
__device__ __forceinline__ void ScoreGradients(const AttentionCall& call, const Seen& seen,
                                               const Query& query, const Statistics& statistics,
                                               Part* scores, Part* dp) {
#pragma unroll
  for (int i = 0; i < kPartRows; ++i) {
#pragma unroll
    for (int j = 0; j < kPartCols; ++j) {
      const bool is_seen = seen(i, j);
      const int at = query(i, j);
      const float share = call.cap > 0 ? call.ShareOfCap(scores->at[i][j]) : 0.0F;
      const float score = call.cap > 0 ? call.cap * share : call.scale * scores->at[i][j];
      const float p = is_seen ? expf(score - statistics.lse[at]) : 0.0F;
      const float slope = call.scale * (1.0F - share * share);
      scores->at[i][j] = p;
      dp->at[i][j] = is_seen ? slope * p * (dp->at[i][j] - statistics.deltas[at]) : 0.0F;
    }
  }
}

template <typename T, int kWidth, int kSlices>
__global__ void __launch_bounds__(kSquareThreads, kBlocksAtOnce)
    QueryGradientKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kSide> visible;
  __shared__ Statistics statistics;
  const auto squares = SharedSquares<kWidth, kSlices>();
  const Place<kSlices> place(call.query_len, call.dim);
  const int kv_head = place.head / (call.heads / call.kv_heads);
  const auto queries = QueryRows(call, arrays.q, place.sequence, place.row, place.head);
  const auto douts = OutputRows(call, arrays.dout, place.sequence, place.row, place.head);
  statistics.Load(arrays, call.StatisticAt(place.sequence, place.row, place.head), place.count);
  visible.Load(call, place.sequence, place.row);
  __syncthreads();
  Part dq[kSlices] = {};
  const int end = visible.end;
  for (int key = visible.begin / kSide * kSide; key < end; key += kSide) {
    const auto keys = KeyRows(call, arrays.k, place.sequence, key, kv_head);
    Part scores = squares.Scores(queries, keys);
    Part ds = squares.Scores(douts, KeyRows(call, arrays.v, place.sequence, key, kv_head));
    const auto seen = [&](int i, int j) { return visible.Has(RowOf(i), key + ColumnOf(j)); };
    const auto query = [](int i, int /*j*/) { return RowOf(i); };
    ScoreGradients(call, seen, query, statistics, &scores, &ds);
    squares.AddWeighted(ds, keys, place.column, dq);
  }
  const auto out = QueryRows(call, arrays.dq, place.sequence, place.row, place.head);
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    StoreSlice(dq[slice], place.column + slice * kSide, out);
  }
}

// Adds up the query heads that share a key head, in their order. The sums of two slices of dk and
// of dv leave registers for one block.
template <typename T, int kWidth, int kSlices>
__global__ void __launch_bounds__(kSquareThreads, kSlices == 1 ? kBlocksAtOnce : 1)
    KeyGradientKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kSide> visible;  // to the queries that are walked over
  __shared__ Statistics statistics;       // of these
  const auto squares = SharedSquares<kWidth, kSlices>();
  const Place<kSlices> place(call.seq_len, call.dim);
  const auto keys = KeyRows(call, arrays.k, place.sequence, place.row, place.head);
  const auto values = KeyRows(call, arrays.v, place.sequence, place.row, place.head);
  const int heads = call.heads / call.kv_heads;
  Part dk[kSlices] = {};
  Part dv[kSlices] = {};
  for (int row = 0; row < static_cast<int>(call.query_len); row += kSide) {
    __syncthreads();
    visible.Load(call, place.sequence, row);
    __syncthreads();
    if (visible.end <= place.row || visible.begin >= place.row + kSide) continue;  // none of these
    for (int head = place.head * heads; head < (place.head + 1) * heads; ++head) {
      const auto queries = QueryRows(call, arrays.q, place.sequence, row, head);
      const auto douts = OutputRows(call, arrays.dout, place.sequence, row, head);
      statistics.Load(arrays, call.StatisticAt(place.sequence, row, head), queries.count);
      Part p = squares.Scores(keys, queries);
      Part ds = squares.Scores(values, douts);
      const auto seen = [&](int i, int j) {
        return visible.Has(ColumnOf(j), place.row + RowOf(i));
      };
      const auto query = [](int /*i*/, int j) { return ColumnOf(j); };
      ScoreGradients(call, seen, query, statistics, &p, &ds);
      squares.AddWeighted(p, douts, place.column, dv);
      squares.AddWeighted(ds, queries, place.column, dk);
    }
  }
  const auto to_dk = KeyRows(call, arrays.dk, place.sequence, place.row, place.head);
  const auto to_dv = KeyRows(call, arrays.dv, place.sequence, place.row, place.head);
#pragma unroll
  for (int slice = 0; slice < kSlices; ++slice) {
    StoreSlice(dk[slice], place.column + slice * kSide, to_dk);
    StoreSlice(dv[slice], place.column + slice * kSide, to_dv);
  }
}

template <int kSlices>
Grid GridOf(const AttentionShape& shape, int64_t rows, int64_t heads) {
  return {.blocks = (rows + kSide - 1) / kSide * BlocksOfHead<kSlices>(shape.head_dim),
          .blocks_y = heads,
          .blocks_z = shape.batch,
          .threads = kSquareThreads,
          .shared_bytes = 2 * kSquareBytes};
}

template <typename T, int kWidth, int kSlices>
cudaError_t Forward(const Queue& queue, const AttentionShape& shape,
                    const AttentionTensors& tensors) {
  const AttentionCall call = CallOf(shape, tensors.first_visible);
  return Launch(AttentionKernel<T, kWidth, kSlices>,
                GridOf<kSlices>(shape, call.query_len, shape.heads), queue.stream, call,
                static_cast<const T*>(tensors.q.data), static_cast<const T*>(tensors.k.data),
                static_cast<const T*>(tensors.v.data), static_cast<T*>(tensors.o.data),
                static_cast<float*>(tensors.lse.data));
}

template <typename T>
cudaError_t QueueDeltas(const Queue& queue, const AttentionShape& shape, const AttentionCall& call,
                        const T* o, const T* dout, float* deltas) {
  const bool wide = shape.head_dim % kWidest<T> == 0;
  return Launch(wide ? DeltaKernel<T, kWidest<T>> : DeltaKernel<T, 1>,
                {.blocks = (call.query_len + kDeltaRows - 1) / kDeltaRows,
                 .blocks_y = shape.heads,
                 .blocks_z = shape.batch,
                 .threads = kDeltaThreads},
                queue.stream, call, o, dout, deltas);
}

// Whether each head of each row may be taken in packs of 16 bytes.
template <typename T>
bool HasWideHeads(const AttentionShape& shape, std::initializer_list<View> tensors) {
  return shape.head_dim % kWidest<T> == 0 &&
         std::all_of(tensors.begin(), tensors.end(), [](View x) { return HasWideRows<T>(x); });
}

template <typename T, int kWidth, int kSlices>
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
  cudaError_t code =
      QueueDeltas(queue, shape, call, static_cast<const T*>(tensors.o.data), dout, deltas);
  if (code != cudaSuccess) return code;
  if constexpr (!std::is_same_v<T, float> && kWidth > 1) {
    if (HasMmaAttention(shape, tensors.q.dtype)) {
      return QueueMmaAttentionGradient(queue, shape, call, arrays);
    }
  }
  code = Launch(QueryGradientKernel<T, kWidth, kSlices>,
                GridOf<kSlices>(shape, call.query_len, shape.heads), queue.stream, call, arrays);
  if (code != cudaSuccess) return code;
  return Launch(KeyGradientKernel<T, kWidth, kSlices>,
                GridOf<kSlices>(shape, shape.seq_len, shape.kv_heads), queue.stream, call, arrays);
}

}  // namespace

AttentionCall CallOf(const AttentionShape& shape, View first_visible) {
  return {.seq_len = shape.seq_len,
          .query_len = shape.query_len(),
          .run_len = shape.run_len(),
          .piece = {shape.piece[0], shape.piece[1]},
          .first_visible = static_cast<const int32_t*>(first_visible.data),
          .query_stride = shape.query_stride(),
          .key_stride = shape.key_stride(),
          .heads = static_cast<int>(shape.heads),
          .kv_heads = static_cast<int>(shape.kv_heads),
          .dim = static_cast<int>(shape.head_dim),
          .scale = shape.score_scale(),
          .cap = static_cast<float>(shape.cap)};
}

cudaError_t QueueAttention(const Queue& queue, const AttentionShape& shape,
                           const AttentionTensors& tensors) {
  return WithType(tensors.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = kWidest<T>;
    if (!HasWideHeads<T>(shape, {tensors.q, tensors.k, tensors.v, tensors.o})) {
      return Forward<T, 1, 2>(queue, shape, tensors);
    }
    if (HasMmaAttention(shape, tensors.q.dtype)) return QueueMmaAttention(queue, shape, tensors);
    return shape.head_dim <= kSide ? Forward<T, kWidth, 1>(queue, shape, tensors)
                                   : Forward<T, kWidth, 2>(queue, shape, tensors);
  });
}

cudaError_t QueueAttentionGradient(const Queue& queue, const AttentionShape& shape,
                                   const AttentionTensors& tensors,
                                   const AttentionGradientTensors& gradients) {
  return WithType(tensors.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = kWidest<T>;
    if (!HasWideHeads<T>(shape, {tensors.q, tensors.k, tensors.v, gradients.dout, gradients.dq,
                                 gradients.dk, gradients.dv})) {
      return Backward<T, 1, 2>(queue, shape, tensors, gradients);
    }
    return shape.head_dim <= kSide ? Backward<T, kWidth, 1>(queue, shape, tensors, gradients)
                                   : Backward<T, kWidth, 2>(queue, shape, tensors, gradients);
  });
}

}  // namespace weft
