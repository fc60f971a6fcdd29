// Softmax cross-entropy over a range of the vocabulary, a block per row of logits, which is read in
// accesses of 16 bytes wherever it begins: few vocabularies are a multiple of eight. The formulas
// are those of cpu/cross_entropy.cc.
#include <limits>
#include <type_traits>

#include "worker/backend/cuda/block_reduce.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace weft {
namespace {

constexpr int kThreads = 512;

// f(values, first) for all packs of a row, over the block; first is the index of a pack's first
// element. At both ends, up to where 16 bytes are aligned, packs are of one element. Packs of a row
// that is not const are written back.
template <typename T, typename F>
__device__ __forceinline__ void WalkRow(T* row, int64_t cols, const F& f) {
  using Element = std::remove_const_t<T>;
  using One = Pack<Element, 1>;
  constexpr int kWidth = kWidest<Element>;
  using Wide =
      std::conditional_t<std::is_const_v<T>, const Pack<Element, kWidth>, Pack<Element, kWidth>>;
  const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(Element));
  const int64_t head = min(cols, (kWidth - offset) % kWidth);
  const int64_t packs = (cols - head) / kWidth;
  Wide* const wide = reinterpret_cast<Wide*>(row + head);
#pragma unroll 4
  for (int64_t i = threadIdx.x; i < packs; i += kThreads) {
    Pack<Element, kWidth> values = wide[i];
    f(values, head + i * kWidth);
    if constexpr (!std::is_const_v<T>) wide[i] = values;
  }
  for (int64_t i = threadIdx.x; i < cols - packs * kWidth; i += kThreads) {
    const int64_t at = i < head ? i : packs * kWidth + i;
    One value = {{row[at]}};
    f(value, at);
    if constexpr (!std::is_const_v<T>) row[at] = value.at[0];
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowMaxKernel(const T* logits, int64_t cols, float lowest, float* row_max) {
  const T* const x = logits + static_cast<int64_t>(blockIdx.x) * cols;
  float highest = lowest;
  WalkRow(x, cols, [&](const auto& values, int64_t /*first*/) {
    for (const T value : values.at) highest = MaxOf{}(ToFloat(value), highest);
  });
  highest = ReduceBlock(MaxOf{}, highest);
  if (threadIdx.x == 0) row_max[blockIdx.x] = highest;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowSumExpKernel(const T* logits, int64_t cols, const float* row_max, const int32_t* targets,
                    int64_t first_id, float* row_sum, float* target_logit) {
  const int64_t row = blockIdx.x;
  const T* const x = logits + row * cols;
  const float highest = row_max[row];
  double total = 0;
  WalkRow(x, cols, [&](const auto& values, int64_t /*first*/) {
    for (const T value : values.at) total += static_cast<double>(expf(ToFloat(value) - highest));
  });
  total = ReduceBlock(SumOf{}, total);
  if (threadIdx.x != 0) return;
  row_sum[row] = static_cast<float>(total);
  const int64_t target = targets[row] - first_id;
  target_logit[row] = target >= 0 && target < cols ? ToFloat(x[target]) : 0.0F;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxGradientKernel(const float* row_max, const float* row_sum, const int32_t* targets,
                          int64_t first_id, double scale, T* logits, int64_t cols) {
  const int64_t row = blockIdx.x;
  T* const x = logits + row * cols;
  const float highest = row_max[row];
  const double sum = static_cast<double>(row_sum[row]);
  const auto factor = static_cast<float>(scale / sum);
  const int64_t target = targets[row] - first_id;
  WalkRow(x, cols, [&](auto& values, int64_t first) {
    int64_t i = first;
    for (T& value : values.at) {
      const float shifted = ToFloat(value) - highest;
      // p - 1 for the target is taken in double: when p is near 1 it would keep few digits.
      const float gradient =
          i == target ? static_cast<float>((exp(static_cast<double>(shifted)) / sum - 1.0) * scale)
                      : expf(shifted) * factor;
      value = FromFloat<T>(gradient);
      ++i;
    }
  });
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

}  // namespace

cudaError_t QueueRowMax(const Queue& queue, View logits, View row_max) {
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(RowMaxKernel<T>, {.blocks = logits.rows, .threads = kThreads}, queue.stream,
                  static_cast<const T*>(logits.data), logits.cols,
                  -std::numeric_limits<float>::infinity(), Floats(row_max));
  });
}

cudaError_t QueueRowSumExp(const Queue& queue, View logits, View row_max, View targets,
                           int64_t first_id, View row_sum, View target_logit) {
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(RowSumExpKernel<T>, {.blocks = logits.rows, .threads = kThreads}, queue.stream,
                  static_cast<const T*>(logits.data), logits.cols, Floats(row_max),
                  static_cast<const int32_t*>(targets.data), first_id, Floats(row_sum),
                  Floats(target_logit));
  });
}

cudaError_t QueueSoftmaxGradient(const Queue& queue, View row_max, View row_sum, View targets,
                                 int64_t first_id, double scale, View logits) {
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(SoftmaxGradientKernel<T>, {.blocks = logits.rows, .threads = kThreads},
                  queue.stream, Floats(row_max), Floats(row_sum),
                  static_cast<const int32_t*>(targets.data), first_id, scale,
                  static_cast<T*>(logits.data), logits.cols);
  });
}

}  // namespace weft
