// A total grows by one double for a whole array, or for many of them: each block adds up its part,
// then one block adds up the blocks' sums. The grids depend on the arrays' lengths alone.
#include <algorithm>
#include <cstdint>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"
#include "worker/backend/cuda/kernels/segments.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostBlocks = 1024;

template <typename Terms>
__global__ void __launch_bounds__(kThreads)
    PartialTotalsKernel(Terms terms, int64_t count, double* partials) {
  double total = 0;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += stride) {
    total += terms(i);
  }
  total = ReduceBlock(SumOf{}, total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

__global__ void __launch_bounds__(kThreads)
    AddTotalKernel(const double* partials, int count, double* total) {
  double sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) sum += partials[i];
  sum = ReduceBlock(SumOf{}, sum);
  if (threadIdx.x == 0) *total += sum;
}

template <typename Terms>
cudaError_t AddTotal(const Queue& queue, const Terms& terms, int64_t count, View total) {
  const int64_t blocks = std::clamp((count + kThreads - 1) / kThreads, int64_t{1}, kMostBlocks);
  if (queue.scratch_bytes < kMostBlocks * static_cast<int64_t>(sizeof(double))) {
    return cudaErrorInvalidValue;
  }
  auto* const partials = static_cast<double*>(queue.scratch);
  const cudaError_t code =
      Launch(PartialTotalsKernel<Terms>, {.blocks = blocks, .threads = kThreads}, queue.stream,
             terms, count, partials);
  if (code != cudaSuccess) return code;
  return Launch(AddTotalKernel, {.threads = kThreads}, queue.stream, partials,
                static_cast<int>(blocks), static_cast<double*>(total.data));
}

struct RowLosses {
  const float* row_max;
  const float* row_sum;
  const float* target_logit;
  double z_weight;
  __device__ double operator()(int64_t row) const {
    const double log_sum =
        log(static_cast<double>(row_sum[row])) + static_cast<double>(row_max[row]);
    const double loss = log_sum - static_cast<double>(target_logit[row]);
    return z_weight == 0 ? loss : loss + z_weight * log_sum * log_sum;
  }
};

template <typename T>
struct SquaredArray {
  const T* x;
  int64_t count;
};

// This thread's of x[0, count): of whole packs, if x may be read by them, and of what remains.
template <typename T>
__device__ __forceinline__ double SquaresOf(const T* x, int64_t count) {
  constexpr int kWidth = kWidest<T>;
  double total = 0;
  const auto add = [&](T element) {
    const double value = static_cast<double>(ToFloat(element));
    total += value * value;
  };
  const int64_t packs = reinterpret_cast<uintptr_t>(x) % 16 == 0 ? count / kWidth : 0;
  for (int64_t i = threadIdx.x; i < packs; i += kChunkThreads) {
    const auto values = reinterpret_cast<const Pack<T, kWidth>*>(x)[i];
    for (const T value : values.at) add(value);
  }
  for (int64_t i = packs * kWidth + threadIdx.x; i < count; i += kChunkThreads) add(x[i]);
  return total;
}

template <typename T>
__global__ void __launch_bounds__(kChunkThreads)
    PartialSquaresKernel(const __grid_constant__ SegmentTable<SquaredArray<T>> table,
                         double* partials) {
  double total = 0;
  for (int64_t chunk = blockIdx.x; chunk < table.chunks; chunk += gridDim.x) {
    WithChunk(table, chunk, [&](const SquaredArray<T>& array, int64_t first, int64_t count) {
      total += SquaresOf(array.x + first, count);
    });
  }
  total = ReduceBlock(SumOf{}, total);
  if (threadIdx.x == 0) partials[blockIdx.x] = total;
}

// Each table's blocks leave their partial sums behind those of the one before; one block adds up
// all.
template <typename T>
cudaError_t AddSquares(const Queue& queue, const View* xs, int64_t count, double* total) {
  const int64_t most_partials = queue.scratch_bytes / static_cast<int64_t>(sizeof(double));
  auto* const partials = static_cast<double*>(queue.scratch);
  int64_t held = 0;
  const cudaError_t code = ForEachTable<SquaredArray<T>>(
      count,
      [&](int64_t i) {
        return SquaredArray<T>{static_cast<const T*>(xs[i].data), xs[i].elements()};
      },
      [&](const SegmentTable<SquaredArray<T>>& table) {
        const int64_t blocks = std::min(int64_t{table.chunks}, kMostBlocks);
        if (held + blocks > most_partials) return cudaErrorInvalidValue;
        double* const from = partials + held;
        held += blocks;
        return Launch(PartialSquaresKernel<T>, {.blocks = blocks, .threads = kChunkThreads},
                      queue.stream, table, from);
      });
  if (code != cudaSuccess || held == 0) return code;
  return Launch(AddTotalKernel, {.threads = kThreads}, queue.stream, partials,
                static_cast<int>(held), total);
}

__global__ void GradientScaleKernel(ClipParameters clip, const double* loss, const double* squares,
                                    double* scale) {
  const double norm = sqrt(*squares) / clip.loss_scale;
  const double clipped = clip.max_norm == 0 ? 1.0 : min(1.0, clip.max_norm / (norm + kClipEps));
  // A difference that is not 0 is of what is not finite.
  const bool is_finite = *loss - *loss == 0 && norm - norm == 0;
  *scale = is_finite ? clipped / clip.loss_scale : norm - norm + (*loss - *loss);
}

const float* Floats(View x) {
  return static_cast<const float*>(x.data);
}

}  // namespace

cudaError_t QueueAddLossSum(const Queue& queue, View row_max, View row_sum, View target_logit,
                            const LossTerms& loss, View total) {
  return AddTotal(queue,
                  RowLosses{Floats(row_max), Floats(row_sum), Floats(target_logit), loss.z_weight},
                  row_max.elements(), total);
}

cudaError_t QueueAddSumOfSquares(const Queue& queue, const View* xs, int64_t count, View total) {
  if (count == 0) return cudaSuccess;
  return WithType(xs->dtype, [&](auto zero) {
    return AddSquares<decltype(zero)>(queue, xs, count, static_cast<double*>(total.data));
  });
}

cudaError_t QueueGradientScale(const Queue& queue, const ClipParameters& clip, View loss,
                               View squares, View scale) {
  return Launch(GradientScaleKernel, {.threads = 1}, queue.stream, clip,
                static_cast<const double*>(loss.data), static_cast<const double*>(squares.data),
                static_cast<double*>(scale.data));
}

}  // namespace weft
