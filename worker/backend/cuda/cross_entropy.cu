// Softmax cross-entropy over a range of the vocabulary, a block per row of logits; the formulas are
// those of cpu/cross_entropy.cc.
#include <limits>

#include "worker/backend/cuda/block_reduce.h"
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace weft {
namespace {

constexpr int kThreads = 512;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowMaxKernel(const T* logits, int64_t cols, float lowest, float* row_max) {
  const T* const x = logits + static_cast<int64_t>(blockIdx.x) * cols;
  float highest = lowest;
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) highest = MaxOf{}(ToFloat(x[i]), highest);
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
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    total += static_cast<double>(expf(ToFloat(x[i]) - highest));
  }
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
  for (int64_t i = threadIdx.x; i < cols; i += kThreads) {
    const float shifted = ToFloat(x[i]) - highest;
    // p - 1 for the target is taken in double: when p is near 1 it would keep few digits.
    const float gradient =
        i == target ? static_cast<float>((exp(static_cast<double>(shifted)) / sum - 1.0) * scale)
                    : expf(shifted) * factor;
    x[i] = FromFloat<T>(gradient);
  }
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
