// Causal attention on the tensor cores (mma.sync, from compute capability 8.0), after
// FlashAttention-2 (Dao, arXiv:2307.08691), for 16-bit elements and heads of 64 or 128: as
// attention.cu in its order and as free of atomics. Probabilities are rounded to 16 bits before
// they are multiplied, as everywhere on this hardware; sums are f32, exponentials are powers of
// two. The gradient is in attention_mma_gradient.cu.
//
// Values come into shared memory while scores are computed, keys while values are weighted: so one
// buffer of each does, and a head of 128 fits compute capability 8.9, which two would not.
#include <type_traits>

#include "worker/backend/cuda/attention/attention_mma.h"
#include "worker/backend/cuda/attention/attention_tile.h"
#include "worker/backend/cuda/attention/mma_tile.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {
namespace {

constexpr int kTiles = 2;  // of 16 rows, of a warp: what is loaded as right operand serves both
constexpr int kRows = 16 * kMmaWarps * kTiles;  // of a block
constexpr float kNothing = -1e30F;
// Counts the keys of a tile that a block walks over: as many as leave registers for sums of that
// width.
template <int kDim>
constexpr int kKeysOf = kDim == 64 ? 64 : 32;

template <typename T>
struct ForwardArrays {
  const T *q, *k, *v;
  T* o;
  float* lse;
};

// Holds what the softmax of a thread's two rows of a tile knows so far: the greatest score and the
// sum of 2^(score - highest).
struct SoftmaxRows {
  float highest[2] = {kNothing, kNothing};
  float total[2] = {0, 0};
};

// Takes one tile of scores [16, 8 kCount] into the softmax; scores become powers, sums so far are
// rescaled.
template <int kCount, int kSums>
__device__ __forceinline__ void TakeScores(FragmentC (&scores)[kCount], SoftmaxRows* softmax,
                                           FragmentC (&sums)[kSums]) {
  for (int half = 0; half < 2; ++half) {
    float most = kNothing;
    for (const FragmentC& score : scores) {
      most = fmaxf(most, fmaxf(score.at[2 * half], score.at[2 * half + 1]));
    }
    const float before = softmax->highest[half];
    const float now = fmaxf(before, ReduceQuad(MaxOf{}, most));
    float sum = 0;
    for (FragmentC& score : scores) {
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        score.at[i] = score.at[i] <= kNothing ? 0.0F : exp2f(score.at[i] - now);
        sum += score.at[i];
      }
    }
    const float correction = before > kNothing ? exp2f(before - now) : 0.0F;
    softmax->total[half] = softmax->total[half] * correction + ReduceQuad(SumOf{}, sum);
    softmax->highest[half] = now;
    for (FragmentC& kept : sums) {
      kept.at[2 * half] *= correction;
      kept.at[2 * half + 1] *= correction;
    }
  }
}

// scores[16, 8 kCount] of keys from `key` on become exponents of two; of those that a row does not
// see, nothing. `row` is the thread's first of the tile.
template <bool kCapped, int kCount>
__device__ __forceinline__ void Mask(const VisibleKeys<kRows>& visible, const AttentionCall& call,
                                     int row, int64_t key, FragmentC (&scores)[kCount]) {
  const float scale = (kCapped ? call.cap : call.scale) * kLog2OfE;
  for (FragmentC& score : scores) {
    for (float& at : score.at) at = scale * (kCapped ? call.RoughShareOfCap(at) : at);
  }
  const int64_t last = key + 8 * kCount - 1;
  const bool sees_all = visible.Has(row, key) && visible.Has(row, last) &&
                        visible.Has(row + 8, key) && visible.Has(row + 8, last);
  if (sees_all) return;
  for (int n = 0; n < kCount; ++n) {
    for (int i = 0; i < 4; ++i) {
      const bool seen = visible.Has(row + i / 2 * 8, key + 8 * n + PairAt() + i % 2);
      if (!seen) scores[n].at[i] = kNothing;
    }
  }
}

template <typename T, int kDim, bool kCapped>
__global__ void __launch_bounds__(kMmaThreads)
    AttentionMmaKernel(AttentionCall call, ForwardArrays<T> arrays) {
  __shared__ VisibleKeys<kRows> visible;
  T* const shared = DynamicShared<T>();
  constexpr int kStride = Tile<T, kDim>::kStride;
  constexpr int kKeys = kKeysOf<kDim>;
  const Tile<T, kDim> q = {shared};
  const Tile<T, kDim> k = {shared + kRows * kStride};
  const Tile<T, kDim> v = {shared + (kRows + kKeys) * kStride};
  const TilePlace<kRows> place(call.query_len);
  const int kv_head = place.head / (call.heads / call.kv_heads);
  const int64_t output_at = call.OutputAt(place.sequence, place.row, place.head);
  const auto copy = [&](const Tile<T, kDim>& to, const T* from, int64_t key) {
    const int keys = static_cast<int>(min(static_cast<int64_t>(kKeys), call.seq_len - key));
    to.Copy(from + call.KeyAt(place.sequence, key, kv_head), call.key_stride, keys, kKeys);
  };
  visible.Load(call, place.sequence, place.row);
  q.Copy(arrays.q + call.QueryAt(place.sequence, place.row, place.head), call.query_stride,
         place.count, kRows);
  __syncthreads();
  const int64_t begin = visible.begin / kKeys * kKeys;
  if (begin < visible.end) copy(k, arrays.k, begin);
  SoftmaxRows softmax[kTiles];
  FragmentC sums[kTiles][kDim / 8] = {};
  for (int64_t key = begin; key < visible.end; key += kKeys) {
    WaitForCopies();
    __syncthreads();  // the keys are there; nobody needs the values before any more
    copy(v, arrays.v, key);
    FragmentC scores[kTiles][kKeys / 8];
    ScoresOf(q, place.warp_row, k, scores);
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      Mask<kCapped>(visible, call, place.warp_row + 16 * t + Group(), key, scores[t]);
      TakeScores(scores[t], &softmax[t], sums[t]);
    }
    WaitForCopies();
    __syncthreads();  // the values are there; nobody needs the keys any more
    if (key + kKeys < visible.end) copy(k, arrays.k, key + kKeys);
    AddWeighted(scores, v, sums);
  }
  WaitForCopies();
#pragma unroll
  for (int t = 0; t < kTiles; ++t) {
    const int tile_row = place.warp_row + 16 * t;
    const float factor[2] = {1.0F / softmax[t].total[0], 1.0F / softmax[t].total[1]};
    Store<T, kDim>(sums[t], factor, tile_row, place.count, arrays.o + output_at,
                   call.output_stride());
    for (int half = 0; half < 2; ++half) {
      const int row = tile_row + Group() + 8 * half;
      if (PairAt() == 0 && row < place.count) {
        arrays.lse[call.StatisticAt(place.sequence, place.row + row, place.head)] =
            softmax[t].highest[half] / kLog2OfE + logf(softmax[t].total[half]);
      }
    }
  }
}

template <typename T, int kDim>
cudaError_t Forward(const Queue& queue, const AttentionShape& shape,
                    const AttentionTensors& tensors) {
  const AttentionCall call = CallOf(shape, tensors.first_visible);
  return Launch(
      call.cap > 0 ? AttentionMmaKernel<T, kDim, true> : AttentionMmaKernel<T, kDim, false>,
      {.blocks = TilesOf(call.query_len, kRows),
       .blocks_y = shape.heads,
       .blocks_z = shape.batch,
       .threads = kMmaThreads,
       .shared_bytes = TileBytes<T, kDim>(kRows + 2 * kKeysOf<kDim>)},
      queue.stream, call,
      ForwardArrays<T>{static_cast<const T*>(tensors.q.data), static_cast<const T*>(tensors.k.data),
                       static_cast<const T*>(tensors.v.data), static_cast<T*>(tensors.o.data),
                       static_cast<float*>(tensors.lse.data)});
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

}  // namespace weft
