// Softmax cross-entropy over a range of the vocabulary, a block per row of logits, which is read in
// accesses of 16 bytes wherever it begins: inference's rows follow each other, and few vocabularies
// are a multiple of eight. The formulas
// are those of cpu/cross_entropy.cc; sums are of floats within a pack, and in double beyond.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/copy_async.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {
namespace {

constexpr int kThreads = 512;
constexpr float kLowest = -std::numeric_limits<float>::infinity();

// The kernel for whole rows has kRowBlocks blocks on a multiprocessor, so that memory is busy with
// one row while another one is added up; each holds at most kMostHeldBytes of its row.
constexpr int kRowBlocks = 2;
constexpr int64_t kMultiprocessors = 132;
constexpr int64_t kMostHeldBytes = int64_t{112} << 10;

// Where the packs of a row lie: behind `head` single elements, up to where 16 bytes are aligned,
// and before a tail of others.
template <typename T>
struct RowPacks {
  using Element = std::remove_const_t<T>;
  static constexpr int kWidth = kWidest<Element>;
  using Wide =
      std::conditional_t<std::is_const_v<T>, const Pack<Element, kWidth>, Pack<Element, kWidth>>;
  T* row;
  int64_t cols;
  int head;
  int packs;

  __device__ RowPacks(T* data, int64_t elements) : row(data), cols(elements) {
    const auto offset = static_cast<int>(reinterpret_cast<uintptr_t>(row) % 16 / sizeof(Element));
    head = static_cast<int>(min(cols, static_cast<int64_t>((kWidth - offset) % kWidth)));
    packs = static_cast<int>((cols - head) / kWidth);
  }
  __device__ Wide* wide() const { return reinterpret_cast<Wide*>(row + head); }
  __device__ int64_t First(int pack) const { return head + static_cast<int64_t>(pack) * kWidth; }

  // f(values, first) for this thread's single elements; first is the index of the first value.
  // Those of a row that is not const are written back.
  template <typename F>
  __device__ __forceinline__ void ForEachSingle(const F& f) const {
    const int64_t wide_elements = static_cast<int64_t>(packs) * kWidth;
    for (int64_t i = threadIdx.x; i < cols - wide_elements; i += kThreads) {
      const int64_t at = i < head ? i : wide_elements + i;
      Pack<Element, 1> value = {{row[at]}};
      f(value, at);
      if constexpr (!std::is_const_v<T>) row[at] = value.at[0];
    }
  }
  // The same for its packs and single elements.
  template <typename F>
  __device__ __forceinline__ void ForEach(const F& f) const {
#pragma unroll 4
    for (int i = static_cast<int>(threadIdx.x); i < packs; i += kThreads) {
      Pack<Element, kWidth> values = wide()[i];
      f(values, First(i));
      if constexpr (!std::is_const_v<T>) wide()[i] = values;
    }
    ForEachSingle(f);
  }
};

// exp(x), x <= 0. Of logits in 16 bits by the special function unit alone: that rounds the argument
// to 2^-24 of itself, they are rounded to 2^-9 (bf16) or 2^-12 (fp16) of themselves.
template <typename T>
__device__ __forceinline__ float ExpOf(float x) {
  constexpr float kLog2OfE = 1.44269504F;
  if constexpr (sizeof(T) == 4) {
    return expf(x);
  } else {
    return exp2f(x * kLog2OfE);
  }
}

// Adds up exp(value - highest).
template <typename T, int kWidth>
__device__ __forceinline__ double SumExp(const Pack<T, kWidth>& values, float highest) {
  float sum = 0;
  for (const T value : values.at) sum += ExpOf<T>(ToFloat(value) - highest);
  return static_cast<double>(sum);
}

// Holds what a thread has seen of a row: the maximum so far, and the sum of exp(value - maximum).
struct RunningSum {
  float highest = kLowest;
  double total = 0;

  template <typename T, int kWidth>
  __device__ __forceinline__ void Add(const Pack<T, kWidth>& values) {
    float top = highest;
    for (const T value : values.at)
      top = fmaxf(top, ToFloat(value));  // not-a-number is passed over
    if (top > highest) {
      total *= static_cast<double>(expf(highest - top));
      highest = top;
    }
    // Before there is a maximum exp(value) is 0, or not a number where the value is none.
    total += SumExp(values, highest == kLowest ? 0.0F : highest);
  }
  // Returns the sum in terms of the row's maximum.
  __device__ double TotalFor(float row_max) const {
    return total * static_cast<double>(expf(highest - row_max));
  }
};

struct LogitScale {
  double of_loss;
  double of_target;   // what labels take from the target's gradient
  float of_each;      // and, where they are smoothed, from each logit's
  float inverse_cap;  // 0: logits are not capped
  float z_weight;
};

// (softmax (1 + 2 z_weight lse) - labels) * scale, through the cap: of y = cap tanh(x / cap),
// dy/dx = 1 - (y / cap)^2.
struct Gradient {
  float highest;
  int target;
  float of_each, inverse_cap;
  double factor;  // of exp(x - highest)
  double of_target;

  __device__ Gradient(float row_max, float row_sum, int64_t of_row, const LogitScale& scale)
      : highest(row_max),
        target(static_cast<int>(of_row)),
        of_each(scale.of_each),
        inverse_cap(scale.inverse_cap),
        factor(scale.of_loss / static_cast<double>(row_sum)),
        of_target(scale.of_target) {
    if (scale.z_weight != 0) {
      factor *= 1 + 2 * static_cast<double>(scale.z_weight * (logf(row_sum) + row_max));
    }
  }

  // Replaces the values from index `first` on by their gradients.
  template <typename T, int kWidth>
  __device__ __forceinline__ void operator()(Pack<T, kWidth>& values, int64_t first) const {
    float x[kWidth];
    for (int e = 0; e < kWidth; ++e) x[e] = ToFloat(values.at[e]) - highest;
    const int at = target - static_cast<int>(first);
    const bool has_target = at >= 0 && at < kWidth;
    float own = 0;
    if (has_target) own = OfTarget(x, at);
    const auto rounded = static_cast<float>(factor);
    for (int e = 0; e < kWidth; ++e) x[e] = ExpOf<T>(x[e]) * rounded - of_each;
    if (has_target) {
#pragma unroll
      for (int e = 0; e < kWidth; ++e) {
        if (e == at) x[e] = own;
      }
    }
    for (int e = 0; e < kWidth; ++e) {
      // An uncapped logit may be infinite.
      const float share = inverse_cap > 0 ? ToFloat(values.at[e]) * inverse_cap : 0.0F;
      values.at[e] = FromFloat<T>(x[e] * (1.0F - share * share));
    }
  }

 private:
  // p - 1 is taken in double: when p is near 1 it would keep few digits.
  template <int kWidth>
  __device__ float OfTarget(const float (&shifted)[kWidth], int at) const {
    float value = 0;
#pragma unroll
    for (int e = 0; e < kWidth; ++e) {
      if (e == at) value = shifted[e];
    }
    return static_cast<float>(exp(static_cast<double>(value)) * factor - of_target);
  }
};

template <typename T>
__device__ float TargetLogit(const T* row, int64_t cols, int64_t target) {
  return target >= 0 && target < cols ? ToFloat(row[target]) : 0.0F;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowMaxKernel(const T* logits, int64_t cols, int64_t stride, float* row_max) {
  const RowPacks<const T> x(logits + static_cast<int64_t>(blockIdx.x) * stride, cols);
  float highest = kLowest;
  x.ForEach([&](const auto& values, int64_t /*first*/) {
    for (const T value : values.at) highest = fmaxf(highest, ToFloat(value));
  });
  highest = ReduceBlock(MaxOf{}, highest);
  if (threadIdx.x == 0) row_max[blockIdx.x] = highest;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    RowSumExpKernel(const T* logits, int64_t cols, int64_t stride, const float* row_max,
                    const int32_t* targets, int64_t first_id, double smoothing, double of_each,
                    float* row_sum, float* target_logit) {
  const int64_t row = blockIdx.x;
  const RowPacks<const T> x(logits + row * stride, cols);
  const float highest = row_max[row];
  double total = 0;
  x.ForEach([&](const auto& values, int64_t /*first*/) { total += SumExp(values, highest); });
  total = ReduceBlock(SumOf{}, total);
  double sum = 0;
  if (smoothing > 0) {
    x.ForEach([&](const auto& values, int64_t /*first*/) {
      for (const T value : values.at) sum += static_cast<double>(ToFloat(value));
    });
    sum = ReduceBlock(SumOf{}, sum);
  }
  if (threadIdx.x != 0) return;
  row_sum[row] = static_cast<float>(total);
  const float logit = TargetLogit(x.row, cols, targets[row] - first_id);
  target_logit[row] =
      smoothing > 0
          ? static_cast<float>((1 - smoothing) * static_cast<double>(logit) + of_each * sum)
          : logit;
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxGradientKernel(const float* row_max, const float* row_sum, const int32_t* targets,
                          int64_t first_id, LogitScale scale, T* logits, int64_t cols,
                          int64_t stride) {
  const int64_t row = blockIdx.x;
  const RowPacks<T> x(logits + row * stride, cols);
  x.ForEach(Gradient(row_max[row], row_sum[row], targets[row] - first_id, scale));
}

struct RowResults {
  float* row_max;
  float* row_sum;
  float* target_logit;
};

// Returns the sum over this thread's part of a row, whose first `num_held` packs are in shared
// memory. It adds in the order of the row's packs, however many are held: the same bits on any
// device.
template <typename T, typename Wide>
__device__ __forceinline__ RunningSum SumRow(const RowPacks<T>& x, const Wide* held, int num_held) {
  RunningSum sum;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < num_held; i += kThreads) {
    const Wide values = held[i];
    sum.Add(values);
  }
#pragma unroll 4
  for (int i = num_held + thread; i < x.packs; i += kThreads) {
    const Wide values = x.wide()[i];
    sum.Add(values);
  }
  RowPacks<const T>(x.row, x.cols).ForEachSingle([&](const auto& value, int64_t /*at*/) {
    sum.Add(value);
  });
  return sum;
}

// Whole rows: read once, written once. Shared memory holds the first `room` packs of a row, those
// of the next one come into their places as their gradients leave; packs beyond are read again, the
// last ones first, which may still be in the cache. A thread reads only what it has copied: no
// barrier.
template <typename T>
__global__ void __launch_bounds__(kThreads, kRowBlocks)
    CrossEntropyKernel(const int32_t* targets, LogitScale scale, T* logits, int64_t rows,
                       int64_t cols, int64_t stride, int room, RowResults results) {
  using Wide = typename RowPacks<T>::Wide;
  Wide* const held = DynamicShared<Wide>();
  const int thread = static_cast<int>(threadIdx.x);
  const auto row_at = [&](int64_t row) { return RowPacks<T>(logits + row * stride, cols); };
  const auto held_of = [&](const RowPacks<T>& x) { return min(x.packs, room); };

  const RowPacks<T> first = row_at(blockIdx.x);
  for (int i = thread; i < held_of(first); i += kThreads) {
    CopyAsync16(held + i, first.wide() + i, true);
  }
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const RowPacks<T> x = row_at(row);
    const int of_x = held_of(x);
    const int64_t target = targets[row];
    const float logit = thread == 0 ? TargetLogit(x.row, cols, target) : 0.0F;
    WaitForCopies();
    const RunningSum own = SumRow(x, held, of_x);
    const float highest = ReduceBlock(MaxOf{}, own.highest);
    const auto sum = static_cast<float>(ReduceBlock(SumOf{}, own.TotalFor(highest)));
    if (thread == 0) {
      results.row_max[row] = highest;
      results.row_sum[row] = sum;
      results.target_logit[row] = logit;
    }

    const Gradient gradient(highest, sum, target, scale);
    const int beyond = (x.packs - of_x - thread + kThreads - 1) / kThreads;  // of this thread
#pragma unroll 4
    for (int n = beyond - 1; n >= 0; --n) {
      const int i = of_x + thread + n * kThreads;
      Wide values = x.wide()[i];
      gradient(values, x.First(i));
      x.wide()[i] = values;
    }
    x.ForEachSingle(gradient);
    const bool has_next = row + gridDim.x < rows;
    const RowPacks<T> next = row_at(has_next ? row + gridDim.x : row);
    const int of_next = has_next ? held_of(next) : 0;
    for (int i = thread; i < max(of_x, of_next); i += kThreads) {
      if (i < of_x) {
        Wide values = held[i];
        gradient(values, x.First(i));
        x.wide()[i] = values;
      }
      if (i < of_next) CopyAsync16(held + i, next.wide() + i, true);
    }
  }
}

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

LogitScale ScaleOf(const LossTerms& loss) {
  return {.of_loss = loss.scale,
          .of_target = (1 - loss.smoothing + loss.smoothing_of_each()) * loss.scale,
          .of_each = static_cast<float>(loss.smoothing_of_each() * loss.scale),
          .inverse_cap = loss.cap > 0 ? static_cast<float>(1.0 / loss.cap) : 0.0F,
          .z_weight = static_cast<float>(loss.z_weight)};
}

// Packs of a row that a block may hold on this device: all, or as many for each thread.
cudaError_t FindRoom(int64_t row_bytes, int64_t* packs) {
  constexpr int64_t kOfTheKernelItself = 1 << 10;
  int device = 0;
  int most_bytes = 0;
  cudaError_t code = cudaGetDevice(&device);
  if (code == cudaSuccess) {
    code = cudaDeviceGetAttribute(&most_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  }
  const int64_t room = std::min(most_bytes - kOfTheKernelItself, kMostHeldBytes) / 16;
  *packs = std::min(row_bytes / 16, room / kThreads * kThreads);
  return code;
}

}  // namespace

cudaError_t QueueRowMax(const Queue& queue, View logits, View row_max) {
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(RowMaxKernel<T>, {.blocks = logits.rows, .threads = kThreads}, queue.stream,
                  static_cast<const T*>(logits.data), logits.cols, logits.stride(),
                  Floats(row_max));
  });
}

cudaError_t QueueRowSumExp(const Queue& queue, View logits, View row_max, View targets,
                           int64_t first_id, const LossTerms& loss, View row_sum,
                           View target_logit) {
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(RowSumExpKernel<T>, {.blocks = logits.rows, .threads = kThreads}, queue.stream,
                  static_cast<const T*>(logits.data), logits.cols, logits.stride(), Floats(row_max),
                  static_cast<const int32_t*>(targets.data), first_id, loss.smoothing,
                  loss.smoothing_of_each(), Floats(row_sum), Floats(target_logit));
  });
}

cudaError_t QueueSoftmaxGradient(const Queue& queue, View row_max, View row_sum, View targets,
                                 int64_t first_id, const LossTerms& loss, View logits) {
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(SoftmaxGradientKernel<T>, {.blocks = logits.rows, .threads = kThreads},
                  queue.stream, Floats(row_max), Floats(row_sum),
                  static_cast<const int32_t*>(targets.data), first_id, ScaleOf(loss),
                  static_cast<T*>(logits.data), logits.cols, logits.stride());
  });
}

cudaError_t QueueCrossEntropy(const Queue& queue, View targets, const LossTerms& loss, View logits,
                              View row_max, View row_sum, View target_logit) {
  // The kernel that reads a row once does not add up its logits beside.
  if (loss.smoothing > 0) {
    cudaError_t queued = QueueRowMax(queue, logits, row_max);
    if (queued == cudaSuccess) {
      queued = QueueRowSumExp(queue, logits, row_max, targets, 0, loss, row_sum, target_logit);
    }
    return queued != cudaSuccess
               ? queued
               : QueueSoftmaxGradient(queue, row_max, row_sum, targets, 0, loss, logits);
  }
  int64_t room = 0;
  const cudaError_t code = FindRoom(logits.cols * ElementBytes(logits.dtype), &room);
  if (code != cudaSuccess) return code;
  const Grid grid = {.blocks = std::min(logits.rows, kMultiprocessors * kRowBlocks),
                     .threads = kThreads,
                     .shared_bytes = room * 16};
  return WithType(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(
        CrossEntropyKernel<T>, grid, queue.stream, static_cast<const int32_t*>(targets.data),
        ScaleOf(loss), static_cast<T*>(logits.data), logits.rows, logits.cols, logits.stride(),
        static_cast<int>(room), RowResults{Floats(row_max), Floats(row_sum), Floats(target_logit)});
  });
}

}  // namespace weft
