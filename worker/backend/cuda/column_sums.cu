// Sums over rows, a column per thread, in two steps: each chunk of rows gives a partial sum in
// double, then the partial sums are added in the order of the chunks. How rows are cut depends on
// the shape alone, not on the device.
#include <algorithm>

#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/launch.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMostChunks = 256;
constexpr int64_t kLeastRows = 64;  // of a chunk

struct ChunkShape {
  int64_t rows;
  int64_t cols;
  int64_t rows_per_chunk;
};

// partials [chunks, kSums, cols]; blockIdx.y is the chunk. terms(row, col, out) adds to out.
template <int kSums, typename Terms>
__global__ void __launch_bounds__(kThreads)
    PartialSumsKernel(ChunkShape shape, Terms terms, double* partials) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= shape.cols) return;
  const int64_t chunk = blockIdx.y;
  const int64_t first = chunk * shape.rows_per_chunk;
  const int64_t end = min(shape.rows, first + shape.rows_per_chunk);
  double sums[kSums] = {};
  for (int64_t row = first; row < end; ++row) terms(row, row * shape.cols + col, sums);
  for (int s = 0; s < kSums; ++s) partials[(chunk * kSums + s) * shape.cols + col] = sums[s];
}

template <int kSums>
struct Totals {
  float* at[kSums];
};

template <int kSums>
__global__ void __launch_bounds__(kThreads)
    AddPartialSumsKernel(const double* partials, int64_t chunks, int64_t cols,
                         Totals<kSums> totals) {
  const int64_t col = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (col >= cols) return;
  for (int s = 0; s < kSums; ++s) {
    double sum = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      sum += partials[(chunk * kSums + s) * cols + col];
    }
    totals.at[s][col] = static_cast<float>(static_cast<double>(totals.at[s][col]) + sum);
  }
}

template <int kSums, typename Terms>
cudaError_t AddColumnSums(const Queue& queue, const Terms& terms, int64_t rows, int64_t cols,
                          const Totals<kSums>& totals) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const int64_t chunk_bytes = cols * kSums * static_cast<int64_t>(sizeof(double));
  const int64_t room = std::min(kMostChunks, queue.scratch_bytes / chunk_bytes);
  if (room < 1) return cudaErrorInvalidValue;
  const int64_t wanted = std::clamp((rows + kLeastRows - 1) / kLeastRows, int64_t{1}, room);
  const int64_t rows_per_chunk = (rows + wanted - 1) / wanted;
  const int64_t chunks = (rows + rows_per_chunk - 1) / rows_per_chunk;
  const int64_t blocks = (cols + kThreads - 1) / kThreads;
  auto* const partials = static_cast<double*>(queue.scratch);
  const cudaError_t code = Launch(
      PartialSumsKernel<kSums, Terms>, {.blocks = blocks, .blocks_y = chunks, .threads = kThreads},
      queue.stream, ChunkShape{rows, cols, rows_per_chunk}, terms, partials);
  if (code != cudaSuccess) return code;
  return Launch(AddPartialSumsKernel<kSums>, {.blocks = blocks, .threads = kThreads}, queue.stream,
                partials, chunks, cols, totals);
}

template <typename T>
struct BiasTerms {
  const T* dy;
  __device__ void operator()(int64_t /*row*/, int64_t at, double (&sums)[1]) const {
    sums[0] += static_cast<double>(ToFloat(dy[at]));
  }
};

// Of a run of elements that starts `shift` columns into the first row.
struct SquareTerms {
  const float* gradient;
  int64_t shift;
  int64_t count;
  float scale;
  __device__ void operator()(int64_t /*row*/, int64_t at, double (&sums)[1]) const {
    const int64_t i = at - shift;
    if (i < 0 || i >= count) return;
    const double value = static_cast<double>(gradient[i] * scale);
    sums[0] += value * value;
  }
};

template <typename T>
struct LayerNormTerms {
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  __device__ void operator()(int64_t row, int64_t at, double (&sums)[2]) const {
    const float g = ToFloat(dy[at]);
    sums[0] += static_cast<double>(g * ((ToFloat(x[at]) - mean[row]) * rstd[row]));
    sums[1] += static_cast<double>(g);
  }
};

template <typename T>
struct RmsNormTerms {
  const T* dy;
  const T* x;
  const float* rstd;
  __device__ void operator()(int64_t row, int64_t at, double (&sums)[1]) const {
    sums[0] += static_cast<double>(ToFloat(dy[at]) * (ToFloat(x[at]) * rstd[row]));
  }
};

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

}  // namespace

cudaError_t QueueBiasGradient(const Queue& queue, View dy, View dbias) {
  return WithType(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    return AddColumnSums<1>(queue, BiasTerms<T>{static_cast<const T*>(dy.data)}, dy.rows, dy.cols,
                            {{Floats(dbias)}});
  });
}

cudaError_t QueueColumnSquares(const Queue& queue, double scale, View gradient, int64_t shift,
                               View cols) {
  const int64_t count = gradient.elements();
  const int64_t rows = (shift + count + cols.elements() - 1) / cols.elements();
  const SquareTerms terms = {Floats(gradient), shift, count, static_cast<float>(scale)};
  return AddColumnSums<1>(queue, terms, rows, cols.elements(), {{Floats(cols)}});
}

cudaError_t QueueLayerNormWeightGradient(const Queue& queue, View dy, View x, View mean, View rstd,
                                         View dweight, View dbias) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const LayerNormTerms<T> terms = {static_cast<const T*>(dy.data), static_cast<const T*>(x.data),
                                     Floats(mean), Floats(rstd)};
    return AddColumnSums<2>(queue, terms, x.rows, x.cols, {{Floats(dweight), Floats(dbias)}});
  });
}

cudaError_t QueueRmsNormWeightGradient(const Queue& queue, View dy, View x, View rstd,
                                       View dweight) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const RmsNormTerms<T> terms = {static_cast<const T*>(dy.data), static_cast<const T*>(x.data),
                                   Floats(rstd)};
    return AddColumnSums<1>(queue, terms, x.rows, x.cols, {{Floats(dweight)}});
  });
}

}  // namespace weft
