// The gradient of attention_mma.cu, without atomics: a kernel for dq, which walks over keys, and
// one for dk and dv, which walks over queries and the heads that share a key head. Probabilities
// and their gradients are rounded to 16 bits before they are multiplied. Of two buffers for what is
// walked over, one is filled while the other is multiplied.
#include "worker/backend/cuda/attention/attention_mma.h"
#include "worker/backend/cuda/attention/attention_tile.h"
#include "worker/backend/cuda/attention/mma_tile.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {
namespace {

constexpr int kRows = 16 * kMmaWarps;  // of a block
constexpr int kStep = 32;              // rows of a tile that it walks over

// scores and dp of [16, 8 kCount] become probabilities and scale * p * (dp - delta), the latter
// times the cap's slope; `seen`, `lse_of` (in powers of two) and `delta_of` are asked by fragment n
// and element i of it.
template <bool kCapped, int kCount, typename Seen, typename Of>
__device__ __forceinline__ void ScoreGradients(const AttentionCall& call, const Seen& seen,
                                               const Of& lse_of, const Of& delta_of,
                                               FragmentC (&scores)[kCount],
                                               FragmentC (&dp)[kCount]) {
  const float exponent_scale = call.scale * kLog2OfE;
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_seen = seen(n, i);
      const float share = kCapped ? call.RoughShareOfCap(scores[n].at[i]) : 0.0F;
      const float exponent =
          kCapped ? call.cap * kLog2OfE * share : exponent_scale * scores[n].at[i];
      const float p = is_seen ? exp2f(exponent - lse_of(n, i)) : 0.0F;
      const float slope = kCapped ? call.scale * (1.0F - share * share) : call.scale;
      scores[n].at[i] = p;
      dp[n].at[i] = is_seen ? slope * p * (dp[n].at[i] - delta_of(n, i)) : 0.0F;
    }
  }
}

// lse and delta of a tile's queries, by row or by column of a fragment.
struct ByRow {
  const float* values;
  int first;
  __device__ float operator()(int /*n*/, int i) const { return values[first + i / 2 * 8]; }
};
struct ByColumn {
  const float* values;
  __device__ float operator()(int n, int i) const { return values[8 * n + PairAt() + i % 2]; }
};

// Rows of a query tile's statistics, times `factor`; zeros beyond the last.
__device__ __forceinline__ void LoadStatistics(const float* from, float factor, int count, int rows,
                                               float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += kMmaThreads) {
    to[i] = i < count ? factor * from[i] : 0.0F;
  }
}

// Two tiles that are walked over, of which one is filled while the other is read.
template <typename T, int kDim>
struct Stage {
  Tile<T, kDim> left;
  Tile<T, kDim> right;

  // The stages lie behind the two tiles of the block's own.
  __device__ Stage(T* shared, int index)
      : left{shared + (2 * kRows + 2 * index * kStep) * Tile<T, kDim>::kStride},
        right{left.data + kStep * Tile<T, kDim>::kStride} {}
};

template <typename T, int kDim, bool kCapped>
__global__ void __launch_bounds__(kMmaThreads)
    QueryGradientMmaKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kRows> visible;
  __shared__ float lse[kRows];
  __shared__ float deltas[kRows];
  T* const shared = DynamicShared<T>();
  const Tile<T, kDim> q = {shared};
  const Tile<T, kDim> dout = {shared + kRows * Tile<T, kDim>::kStride};
  const TilePlace<kRows> place(call.query_len);
  const int kv_head = place.head / (call.heads / call.kv_heads);
  const int64_t query_at = call.QueryAt(place.sequence, place.row, place.head);
  const int64_t statistic = call.StatisticAt(place.sequence, place.row, place.head);
  const auto copy = [&](const Stage<T, kDim>& to, int64_t key) {
    const int keys = static_cast<int>(min(static_cast<int64_t>(kStep), call.seq_len - key));
    const int64_t at = call.KeyAt(place.sequence, key, kv_head);
    to.left.Copy(arrays.k + at, call.key_stride, keys, kStep);
    to.right.Copy(arrays.v + at, call.key_stride, keys, kStep);
  };
  visible.Load(call, place.sequence, place.row);
  q.Copy(arrays.q + query_at, call.query_stride, place.count, kRows);
  dout.Copy(arrays.dout + call.OutputAt(place.sequence, place.row, place.head),
            call.output_stride(), place.count, kRows);
  LoadStatistics(arrays.lse + statistic, kLog2OfE, place.count, kRows, lse);
  LoadStatistics(arrays.deltas + statistic, 1, place.count, kRows, deltas);
  __syncthreads();
  FragmentC dq[1][kDim / 8] = {};
  const int own = place.warp_row + Group();
  const int begin = visible.begin / kStep * kStep;
  const int end = visible.end;
  if (begin < end) copy(Stage<T, kDim>(shared, 0), begin);  // keys and values
  int current = 0;
  for (int key = begin; key < end; key += kStep) {
    const Stage<T, kDim> stage(shared, current);
    WaitForCopies();
    __syncthreads();  // this tile is there; nobody reads the other stage any more
    current = 1 - current;
    if (key + kStep < end) copy(Stage<T, kDim>(shared, current), key + kStep);
    FragmentC scores[1][kStep / 8];
    FragmentC ds[1][kStep / 8];
    ScoresOf(q, place.warp_row, stage.left, scores);
    ScoresOf(dout, place.warp_row, stage.right, ds);
    const auto seen = [&](int n, int i) {
      return visible.Has(own + i / 2 * 8, key + 8 * n + PairAt() + i % 2);
    };
    ScoreGradients<kCapped>(call, seen, ByRow{lse, own}, ByRow{deltas, own}, scores[0], ds[0]);
    AddWeighted(ds, stage.left, dq);
  }
  WaitForCopies();
  const float whole[2] = {1, 1};
  Store<T, kDim>(dq[0], whole, place.warp_row, place.count, arrays.dq + query_at,
                 call.query_stride);
}

// Holds what is known of a tile of queries besides its elements.
struct QueryRows {
  int first[kStep];  // keys that each sees
  int last[kStep];
  float lse[kStep];
  float deltas[kStep];
};

// The queries that key gradients walk over: tiles of rows, and of each the heads that share the key
// head. Each warp finds its way by itself, and all find the same.
struct QueryWalk {
  static_assert(kStep == 32, "a lane per row");
  int64_t row;
  int head;
  int first;  // keys that the lane's row sees
  int last;

  __device__ bool IsOver(const AttentionCall& call) const { return row >= call.query_len; }

  // To the first tile from `row` on with a query that sees one of keys [begin, end).
  __device__ void Seek(const AttentionCall& call, int64_t sequence, int64_t begin, int64_t end) {
    for (; row < call.query_len; row += kStep) {
      const int64_t at = row + Lane();
      const bool here = at < call.query_len;
      first = here ? static_cast<int>(call.FirstKeyOf(sequence, at)) : INT32_MAX;
      last = here ? static_cast<int>(call.PositionOf(at)) : -1;
      const int lowest = ReduceWarp(LeastOf{}, first);
      const int highest = ReduceWarp(GreatestOf{}, last);
      if (highest >= begin && lowest < end) return;
    }
  }
};

// Begins to copy q and dout of where the walk is, and takes what else is known of these rows.
template <typename T, int kDim>
__device__ __forceinline__ void CopyQueries(const AttentionCall& call,
                                            const AttentionGradientArrays<T>& arrays,
                                            const QueryWalk& walk, const Stage<T, kDim>& stage,
                                            QueryRows* rows) {
  const int64_t sequence = blockIdx.z;
  const int count = static_cast<int>(min(static_cast<int64_t>(kStep), call.query_len - walk.row));
  const int64_t query_at = call.QueryAt(sequence, walk.row, walk.head);
  const int64_t statistic = call.StatisticAt(sequence, walk.row, walk.head);
  stage.left.Copy(arrays.q + query_at, call.query_stride, count, kStep);
  stage.right.Copy(arrays.dout + call.OutputAt(sequence, walk.row, walk.head), call.output_stride(),
                   count, kStep);
  LoadStatistics(arrays.lse + statistic, kLog2OfE, count, kStep, rows->lse);
  LoadStatistics(arrays.deltas + statistic, 1, count, kStep, rows->deltas);
  if (threadIdx.x < kStep) {
    rows->first[threadIdx.x] = walk.first;
    rows->last[threadIdx.x] = walk.last;
  }
}

template <typename T, int kDim, bool kCapped>
__global__ void __launch_bounds__(kMmaThreads)
    KeyGradientMmaKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ QueryRows rows_of[2];
  T* const shared = DynamicShared<T>();
  const Tile<T, kDim> k = {shared};
  const Tile<T, kDim> v = {shared + kRows * Tile<T, kDim>::kStride};
  const TilePlace<kRows> place(call.seq_len);
  const int64_t key_at = call.KeyAt(place.sequence, place.row, place.head);
  const int heads = call.heads / call.kv_heads;
  k.Copy(arrays.k + key_at, call.key_stride, place.count, kRows);
  v.Copy(arrays.v + key_at, call.key_stride, place.count, kRows);
  FragmentC dk[1][kDim / 8] = {};
  FragmentC dv[1][kDim / 8] = {};
  const int64_t own = place.row + place.warp_row + Group();
  QueryWalk walk = {0, place.head * heads, 0, 0};
  walk.Seek(call, place.sequence, place.row, place.row + kRows);
  if (!walk.IsOver(call)) CopyQueries(call, arrays, walk, Stage<T, kDim>(shared, 0), &rows_of[0]);
  for (int current = 0; !walk.IsOver(call);) {
    const Stage<T, kDim> stage(shared, current);
    const QueryRows& rows = rows_of[current];
    WaitForCopies();
    __syncthreads();  // this tile is there; nobody reads the other stage any more
    current = 1 - current;
    if (++walk.head == (place.head + 1) * heads) {
      walk.head = place.head * heads;
      walk.row += kStep;
      walk.Seek(call, place.sequence, place.row, place.row + kRows);
    }
    if (!walk.IsOver(call)) {
      CopyQueries(call, arrays, walk, Stage<T, kDim>(shared, current), &rows_of[current]);
    }
    FragmentC scores[1][kStep / 8];  // [keys, queries]
    FragmentC ds[1][kStep / 8];
    ScoresOf(k, place.warp_row, stage.left, scores);
    ScoresOf(v, place.warp_row, stage.right, ds);
    const auto seen = [&](int n, int i) {
      const int column = 8 * n + PairAt() + i % 2;
      const int64_t key = own + i / 2 * 8;
      return key >= rows.first[column] && key <= rows.last[column];
    };
    ScoreGradients<kCapped>(call, seen, ByColumn{rows.lse}, ByColumn{rows.deltas}, scores[0],
                            ds[0]);
    AddWeighted(scores, stage.right, dv);
    AddWeighted(ds, stage.left, dk);
  }
  WaitForCopies();
  const float whole[2] = {1, 1};
  Store<T, kDim>(dk[0], whole, place.warp_row, place.count, arrays.dk + key_at, call.key_stride);
  Store<T, kDim>(dv[0], whole, place.warp_row, place.count, arrays.dv + key_at, call.key_stride);
}

template <typename T, int kDim, bool kCapped>
cudaError_t Backward(const Queue& queue, const AttentionShape& shape, const AttentionCall& call,
                     const AttentionGradientArrays<T>& arrays) {
  Grid grid = {.blocks = TilesOf(call.query_len, kRows),
               .blocks_y = shape.heads,
               .blocks_z = shape.batch,
               .threads = kMmaThreads,
               .shared_bytes = TileBytes<T, kDim>(2 * kRows + 4 * kStep)};
  const cudaError_t code =
      Launch(QueryGradientMmaKernel<T, kDim, kCapped>, grid, queue.stream, call, arrays);
  if (code != cudaSuccess) return code;
  grid.blocks = TilesOf(call.seq_len, kRows);
  grid.blocks_y = shape.kv_heads;
  return Launch(KeyGradientMmaKernel<T, kDim, kCapped>, grid, queue.stream, call, arrays);
}
}  // namespace

template <typename T>
cudaError_t QueueMmaAttentionGradient(const Queue& queue, const AttentionShape& shape,
                                      const AttentionCall& call,
                                      const AttentionGradientArrays<T>& arrays) {
  if (call.cap > 0) {
    return shape.head_dim == 64 ? Backward<T, 64, true>(queue, shape, call, arrays)
                                : Backward<T, 128, true>(queue, shape, call, arrays);
  }
  return shape.head_dim == 64 ? Backward<T, 64, false>(queue, shape, call, arrays)
                              : Backward<T, 128, false>(queue, shape, call, arrays);
}

template cudaError_t QueueMmaAttentionGradient(const Queue&, const AttentionShape&,
                                               const AttentionCall&,
                                               const AttentionGradientArrays<__nv_bfloat16>&);
template cudaError_t QueueMmaAttentionGradient(const Queue&, const AttentionShape&,
                                               const AttentionCall&,
                                               const AttentionGradientArrays<__half>&);

}  // namespace weft
