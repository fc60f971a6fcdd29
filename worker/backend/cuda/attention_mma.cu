// Causal attention on the tensor cores (mma.sync, from compute capability 8.0), after
// FlashAttention-2 (Dao, arXiv:2307.08691), for 16-bit elements and heads of 64 or 128: as
// attention.cu in its tiles, its order and its two kernels for the gradient, and as free of
// atomics. Probabilities and their gradients are rounded to 16 bits before they are multiplied, as
// everywhere on this hardware; sums are f32.
//
// A warp owns 16 rows of the block's tile: queries forward and for dq, keys for dk and dv. The
// scores of a warp stay in registers: the fragments that a product leaves are, two by two, the left
// operand of the next.
#include <type_traits>

#include "worker/backend/cuda/attention_mma.h"
#include "worker/backend/cuda/attention_tile.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/launch.h"
#include "worker/backend/cuda/mma.h"

namespace weft {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kRows = 16 * kWarps;  // of a block
constexpr int kKeysForward = 64;    // of a tile that it walks over
constexpr int kStepBackward = 32;   // fewer: the gradients take more registers
constexpr float kNothing = -1e30F;

// [rows, kDim] in shared memory. Eight more elements per row keep the lanes of a fragment, which
// are rows apart, out of each other's banks.
template <typename T, int kDim>
struct Tile {
  static constexpr int kStride = kDim + 8;
  T* data;

  __device__ const T* at(int row, int col) const { return data + row * kStride + col; }

  // Rows from `count` on become zeros: nothing that is not a number comes in by a mask.
  __device__ void Load(const T* from, int64_t stride, int count, int rows) const {
    constexpr int kWidth = 8;
    using Wide = Pack<T, kWidth>;
    for (int i = static_cast<int>(threadIdx.x); i < rows * (kDim / kWidth); i += kThreads) {
      const int row = i / (kDim / kWidth);
      const int col = i % (kDim / kWidth) * kWidth;
      Wide loaded = {};
      if (row < count) loaded = *reinterpret_cast<const Wide*>(from + row * stride + col);
      *reinterpret_cast<Wide*>(data + row * kStride + col) = loaded;
    }
  }
};

__device__ __forceinline__ int Group() {
  return static_cast<int>(threadIdx.x % 32 / 4);
}
__device__ __forceinline__ int PairAt() {
  return static_cast<int>(threadIdx.x % 4 * 2);
}

template <typename T>
__device__ __forceinline__ uint32_t PairOf(T low, T high) {
  union {
    T at[2];
    uint32_t bits;
  } pair = {{low, high}};
  return pair.bits;
}
template <typename T>
__device__ __forceinline__ uint32_t LoadPair(const T* at) {
  return *reinterpret_cast<const uint32_t*>(at);
}

// a = tile[row..row + 16)[col..col + 16)
template <typename T, int kDim>
__device__ __forceinline__ FragmentA LoadA(const Tile<T, kDim>& tile, int row, int col) {
  const int r = row + Group();
  const int c = col + PairAt();
  return {{LoadPair(tile.at(r, c)), LoadPair(tile.at(r + 8, c)), LoadPair(tile.at(r, c + 8)),
           LoadPair(tile.at(r + 8, c + 8))}};
}
// b[k][n] = tile[row + n][col + k]: the product with the rows of the tile.
template <typename T, int kDim>
__device__ __forceinline__ FragmentB LoadRowsAsB(const Tile<T, kDim>& tile, int row, int col) {
  const T* const at = tile.at(row + Group(), col + PairAt());
  return {{LoadPair(at), LoadPair(at + 8)}};
}
// b[k][n] = tile[row + k][col + n]: the product with its columns.
template <typename T, int kDim>
__device__ __forceinline__ FragmentB LoadColumnsAsB(const Tile<T, kDim>& tile, int row, int col) {
  const T* const at = tile.at(row + PairAt(), col + Group());
  constexpr int kStride = Tile<T, kDim>::kStride;
  return {{PairOf(at[0], at[kStride]), PairOf(at[8 * kStride], at[9 * kStride])}};
}
// Two neighbouring results [16, 8] are the left operand [16, 16] of the next product.
template <typename T>
__device__ __forceinline__ FragmentA AsA(const FragmentC& left, const FragmentC& right) {
  const auto pair = [](const FragmentC& c, int i) {
    return PairOf(FromFloat<T>(c.at[i]), FromFloat<T>(c.at[i + 1]));
  };
  return {{pair(left, 0), pair(left, 2), pair(right, 0), pair(right, 2)}};
}

// results[16, 8 kCount] = rows [row, row + 16) of `a` times the rows of `b`.
template <typename T, int kDim, int kCount>
__device__ __forceinline__ void ScoresOf(const Tile<T, kDim>& a, int row, const Tile<T, kDim>& b,
                                         FragmentC (&results)[kCount]) {
  for (FragmentC& result : results) result = {};
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    const FragmentA left = LoadA(a, row, k);
#pragma unroll
    for (int n = 0; n < kCount; ++n) {
      MultiplyAdd<T>(left, LoadRowsAsB(b, 8 * n, k), &results[n]);
    }
  }
}

// sums[16, kDim] += weights[16, 8 kCount] times the tile.
template <typename T, int kDim, int kCount>
__device__ __forceinline__ void AddWeighted(const FragmentC (&weights)[kCount],
                                            const Tile<T, kDim>& tile,
                                            FragmentC (&sums)[kDim / 8]) {
#pragma unroll
  for (int k = 0; k < kCount / 2; ++k) {
    const FragmentA left = AsA<T>(weights[2 * k], weights[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < kDim / 8; ++n) {
      MultiplyAdd<T>(left, LoadColumnsAsB(tile, 16 * k, 8 * n), &sums[n]);
    }
  }
}

// Writes rows [row, row + 16) of which `count` are there, each times factor[0] or, the second
// eight, factor[1].
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
struct Place {
  int64_t sequence;
  int head;     // of queries, or of keys
  int64_t row;  // first of the tile
  int count;    // rows of the tile that are there
  int warp_row;

  __device__ explicit Place(int64_t rows)
      : sequence(blockIdx.z),
        head(static_cast<int>(blockIdx.y)),
        row(static_cast<int64_t>(blockIdx.x) * kRows),
        count(static_cast<int>(min(static_cast<int64_t>(kRows), rows - row))),
        warp_row(static_cast<int>(threadIdx.x / 32) * 16) {}
};

template <typename T>
struct ForwardArrays {
  const T *q, *k, *v;
  T* o;
  float* lse;
};

// Takes one tile of scores [16, 8 kCount] into the softmax of the warp's rows; scores become
// exponentials, sums so far are rescaled.
template <int kCount, int kSums>
__device__ __forceinline__ void TakeScores(FragmentC (&scores)[kCount], float (&highest)[2],
                                           float (&total)[2], FragmentC (&sums)[kSums]) {
  for (int half = 0; half < 2; ++half) {
    float most = kNothing;
    for (const FragmentC& score : scores) {
      most = fmaxf(most, fmaxf(score.at[2 * half], score.at[2 * half + 1]));
    }
    const float now = fmaxf(highest[half], ReduceQuad(MaxOf{}, most));
    float sum = 0;
    for (FragmentC& score : scores) {
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score.at[i] = score.at[i] <= kNothing ? 0.0F : expf(score.at[i] - now);
        sum += score.at[i];
      }
    }
    const float correction = highest[half] > kNothing ? expf(highest[half] - now) : 0.0F;
    total[half] = total[half] * correction + ReduceQuad(SumOf{}, sum);
    highest[half] = now;
    for (FragmentC& kept : sums) {
      kept.at[2 * half] *= correction;
      kept.at[2 * half + 1] *= correction;
    }
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    AttentionMmaKernel(AttentionCall call, ForwardArrays<T> arrays) {
  __shared__ VisibleKeys<kRows> visible;
  T* const shared = DynamicShared<T>();
  constexpr int kStride = Tile<T, kDim>::kStride;
  const Tile<T, kDim> q = {shared};
  const Tile<T, kDim> k = {shared + kRows * kStride};
  const Tile<T, kDim> v = {shared + (kRows + kKeysForward) * kStride};
  const Place place(call.query_len);
  const int kv_head = place.head / (call.heads / call.kv_heads);
  const int64_t query_at = call.QueryAt(place.sequence, place.row, place.head);
  visible.Load(call, place.sequence, place.row);
  q.Load(arrays.q + query_at, call.query_stride(), place.count, kRows);
  __syncthreads();
  float highest[2] = {kNothing, kNothing};
  float total[2] = {0, 0};
  FragmentC sums[kDim / 8] = {};
  for (int64_t key = visible.begin / kKeysForward * kKeysForward; key < visible.end;
       key += kKeysForward) {
    const int keys = static_cast<int>(min(static_cast<int64_t>(kKeysForward), call.seq_len - key));
    const int64_t at = call.KeyAt(place.sequence, key, kv_head);
    k.Load(arrays.k + at, call.key_stride(), keys, kKeysForward);
    v.Load(arrays.v + at, call.key_stride(), keys, kKeysForward);
    __syncthreads();
    FragmentC scores[kKeysForward / 8];
    ScoresOf(q, place.warp_row, k, scores);
    for (int n = 0; n < kKeysForward / 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int row = place.warp_row + Group() + i / 2 * 8;
        const bool seen = visible.Has(row, key + 8 * n + PairAt() + i % 2);
        scores[n].at[i] = seen ? call.scale * scores[n].at[i] : kNothing;
      }
    }
    TakeScores(scores, highest, total, sums);
    AddWeighted(scores, v, sums);
    __syncthreads();
  }
  const float factor[2] = {1.0F / total[0], 1.0F / total[1]};
  Store<T, kDim>(sums, factor, place.warp_row, place.count, arrays.o + query_at,
                 call.query_stride());
  for (int half = 0; half < 2; ++half) {
    const int row = place.warp_row + Group() + 8 * half;
    if (PairAt() == 0 && row < place.count) {
      arrays.lse[call.StatisticAt(place.sequence, place.row + row, place.head)] =
          highest[half] + logf(total[half]);
    }
  }
}

// scores and dp of [16, 8 kCount] become probabilities and scale * p * (dp - delta); `seen`,
// `lse_of` and `delta_of` are asked by fragment n and element i of it.
template <int kCount, typename Seen, typename Of>
__device__ __forceinline__ void ScoreGradients(float scale, const Seen& seen, const Of& lse_of,
                                               const Of& delta_of, FragmentC (&scores)[kCount],
                                               FragmentC (&dp)[kCount]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float p = seen(n, i) ? expf(scale * scores[n].at[i] - lse_of(n, i)) : 0.0F;
      scores[n].at[i] = p;
      dp[n].at[i] = seen(n, i) ? scale * p * (dp[n].at[i] - delta_of(n, i)) : 0.0F;
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

// Rows of a query tile's statistics; zeros beyond the last.
__device__ __forceinline__ void LoadStatistics(const float* from, int count, int rows, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += kThreads) {
    to[i] = i < count ? from[i] : 0.0F;
  }
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    QueryGradientMmaKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kRows> visible;
  __shared__ float lse[kRows];
  __shared__ float deltas[kRows];
  T* const shared = DynamicShared<T>();
  constexpr int kStride = Tile<T, kDim>::kStride;
  const Tile<T, kDim> q = {shared};
  const Tile<T, kDim> dout = {shared + kRows * kStride};
  const Tile<T, kDim> k = {shared + 2 * kRows * kStride};
  const Tile<T, kDim> v = {shared + (2 * kRows + kStepBackward) * kStride};
  const Place place(call.query_len);
  const int kv_head = place.head / (call.heads / call.kv_heads);
  const int64_t query_at = call.QueryAt(place.sequence, place.row, place.head);
  const int64_t statistic = call.StatisticAt(place.sequence, place.row, place.head);
  visible.Load(call, place.sequence, place.row);
  q.Load(arrays.q + query_at, call.query_stride(), place.count, kRows);
  dout.Load(arrays.dout + query_at, call.query_stride(), place.count, kRows);
  LoadStatistics(arrays.lse + statistic, place.count, kRows, lse);
  LoadStatistics(arrays.deltas + statistic, place.count, kRows, deltas);
  __syncthreads();
  FragmentC dq[kDim / 8] = {};
  const int own = place.warp_row + Group();
  for (int64_t key = visible.begin / kStepBackward * kStepBackward; key < visible.end;
       key += kStepBackward) {
    const int keys = static_cast<int>(min(static_cast<int64_t>(kStepBackward), call.seq_len - key));
    const int64_t at = call.KeyAt(place.sequence, key, kv_head);
    k.Load(arrays.k + at, call.key_stride(), keys, kStepBackward);
    v.Load(arrays.v + at, call.key_stride(), keys, kStepBackward);
    __syncthreads();
    FragmentC scores[kStepBackward / 8];
    FragmentC ds[kStepBackward / 8];
    ScoresOf(q, place.warp_row, k, scores);
    ScoresOf(dout, place.warp_row, v, ds);
    const auto seen = [&](int n, int i) {
      return visible.Has(own + i / 2 * 8, key + 8 * n + PairAt() + i % 2);
    };
    ScoreGradients(call.scale, seen, ByRow{lse, own}, ByRow{deltas, own}, scores, ds);
    AddWeighted(ds, k, dq);
    __syncthreads();
  }
  const float whole[2] = {1, 1};
  Store<T, kDim>(dq, whole, place.warp_row, place.count, arrays.dq + query_at, call.query_stride());
}

template <typename T, int kDim>
__global__ void __launch_bounds__(kThreads)
    KeyGradientMmaKernel(AttentionCall call, AttentionGradientArrays<T> arrays) {
  __shared__ VisibleKeys<kStepBackward> visible;
  __shared__ float lse[kStepBackward];
  __shared__ float deltas[kStepBackward];
  T* const shared = DynamicShared<T>();
  constexpr int kStride = Tile<T, kDim>::kStride;
  const Tile<T, kDim> k = {shared};
  const Tile<T, kDim> v = {shared + kRows * kStride};
  const Tile<T, kDim> q = {shared + 2 * kRows * kStride};
  const Tile<T, kDim> dout = {shared + (2 * kRows + kStepBackward) * kStride};
  const Place place(call.seq_len);
  const int64_t key_at = call.KeyAt(place.sequence, place.row, place.head);
  const int heads = call.heads / call.kv_heads;
  k.Load(arrays.k + key_at, call.key_stride(), place.count, kRows);
  v.Load(arrays.v + key_at, call.key_stride(), place.count, kRows);
  FragmentC dk[kDim / 8] = {};
  FragmentC dv[kDim / 8] = {};
  const int64_t own = place.row + place.warp_row + Group();
  for (int64_t row = 0; row < call.query_len; row += kStepBackward) {
    __syncthreads();
    visible.Load(call, place.sequence, row);
    __syncthreads();
    if (visible.end <= place.row || visible.begin >= place.row + kRows) continue;
    const int rows =
        static_cast<int>(min(static_cast<int64_t>(kStepBackward), call.query_len - row));
    for (int head = place.head * heads; head < (place.head + 1) * heads; ++head) {
      const int64_t query_at = call.QueryAt(place.sequence, row, head);
      const int64_t statistic = call.StatisticAt(place.sequence, row, head);
      q.Load(arrays.q + query_at, call.query_stride(), rows, kStepBackward);
      dout.Load(arrays.dout + query_at, call.query_stride(), rows, kStepBackward);
      LoadStatistics(arrays.lse + statistic, rows, kStepBackward, lse);
      LoadStatistics(arrays.deltas + statistic, rows, kStepBackward, deltas);
      __syncthreads();
      FragmentC scores[kStepBackward / 8];  // [keys, queries]
      FragmentC ds[kStepBackward / 8];
      ScoresOf(k, place.warp_row, q, scores);
      ScoresOf(v, place.warp_row, dout, ds);
      const auto seen = [&](int n, int i) {
        return visible.Has(8 * n + PairAt() + i % 2, own + i / 2 * 8);
      };
      ScoreGradients(call.scale, seen, ByColumn{lse}, ByColumn{deltas}, scores, ds);
      AddWeighted(scores, dout, dv);
      AddWeighted(ds, q, dk);
      __syncthreads();
    }
  }
  const float whole[2] = {1, 1};
  Store<T, kDim>(dk, whole, place.warp_row, place.count, arrays.dk + key_at, call.key_stride());
  Store<T, kDim>(dv, whole, place.warp_row, place.count, arrays.dv + key_at, call.key_stride());
}

template <typename T, int kDim>
int64_t SharedBytes(int rows) {
  return int64_t{rows} * Tile<T, kDim>::kStride * static_cast<int64_t>(sizeof(T));
}

template <typename T, int kDim>
cudaError_t Forward(const Queue& queue, const AttentionShape& shape,
                    const AttentionTensors& tensors) {
  const AttentionCall call = CallOf(shape, tensors.first_visible);
  return Launch(
      AttentionMmaKernel<T, kDim>,
      {.blocks = (call.query_len + kRows - 1) / kRows,
       .blocks_y = shape.heads,
       .blocks_z = shape.batch,
       .threads = kThreads,
       .shared_bytes = SharedBytes<T, kDim>(kRows + 2 * kKeysForward)},
      queue.stream, call,
      ForwardArrays<T>{static_cast<const T*>(tensors.q.data), static_cast<const T*>(tensors.k.data),
                       static_cast<const T*>(tensors.v.data), static_cast<T*>(tensors.o.data),
                       static_cast<float*>(tensors.lse.data)});
}

template <typename T, int kDim>
cudaError_t Backward(const Queue& queue, const AttentionShape& shape, const AttentionCall& call,
                     const AttentionGradientArrays<T>& arrays) {
  Grid grid = {.blocks = (call.query_len + kRows - 1) / kRows,
               .blocks_y = shape.heads,
               .blocks_z = shape.batch,
               .threads = kThreads,
               .shared_bytes = SharedBytes<T, kDim>(2 * kRows + 2 * kStepBackward)};
  const cudaError_t code =
      Launch(QueryGradientMmaKernel<T, kDim>, grid, queue.stream, call, arrays);
  if (code != cudaSuccess) return code;
  grid.blocks = (call.seq_len + kRows - 1) / kRows;
  grid.blocks_y = shape.kv_heads;
  return Launch(KeyGradientMmaKernel<T, kDim>, grid, queue.stream, call, arrays);
}

}  // namespace

bool HasMmaAttention(const AttentionShape& shape, DType dtype) {
  return dtype != DType::kF32 && (shape.head_dim == 64 || shape.head_dim == 128);
}

cudaError_t QueueMmaAttention(const Queue& queue, const AttentionShape& shape,
                              const AttentionTensors& tensors) {
  return WithType(tensors.q.dtype, [&](auto zero) {
    using T = decltype(zero);
    if constexpr (!std::is_same_v<T, float>) {
      return shape.head_dim == 64 ? Forward<T, 64>(queue, shape, tensors)
                                  : Forward<T, 128>(queue, shape, tensors);
    } else {
      return cudaErrorInvalidValue;
    }
  });
}

template <typename T>
cudaError_t QueueMmaAttentionGradient(const Queue& queue, const AttentionShape& shape,
                                      const AttentionCall& call,
                                      const AttentionGradientArrays<T>& arrays) {
  return shape.head_dim == 64 ? Backward<T, 64>(queue, shape, call, arrays)
                              : Backward<T, 128>(queue, shape, call, arrays);
}

template cudaError_t QueueMmaAttentionGradient(const Queue&, const AttentionShape&,
                                               const AttentionCall&,
                                               const AttentionGradientArrays<__nv_bfloat16>&);
template cudaError_t QueueMmaAttentionGradient(const Queue&, const AttentionShape&,
                                               const AttentionCall&,
                                               const AttentionGradientArrays<__half>&);

}  // namespace weft
