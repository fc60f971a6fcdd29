// Sums over rows, in two steps: each chunk of rows gives a partial sum of each column in double,
// then the partial sums are added in the order of the chunks. A warp reads 32 packs of 16 bytes of
// a row; the warps of a block take rows in turn, and their sums are added in the order of the
// warps. How rows are cut depends on the shape alone, not on the device.
#include <algorithm>

#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/gradient_scale.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {
namespace {

constexpr int kWarps = 8;
constexpr int kThreads = 32 * kWarps;
constexpr int64_t kMostChunks = 256;
constexpr int64_t kLeastRows = 8 * kWarps;  // of a chunk
constexpr int64_t kBlocks = 132 * 4;        // that are enough for any device

struct ChunkShape {
  int64_t rows;
  int64_t cols;
  int64_t rows_per_chunk;
};

// Holds sums of a block's warps, a column per lane and element, to be added up in the warps' order.
template <int kCols>
struct WarpSums {
  double of_warp[kWarps][kCols];

  __device__ double Total(int col) const {
    double total = of_warp[0][col];
    for (int warp = 1; warp < kWarps; ++warp) total += of_warp[warp][col];
    return total;
  }
};

// partials [chunks, kSums, cols]; blockIdx.y is the chunk. terms.Add(row, at, sums) adds those of
// kWidth elements from `at` on.
template <int kSums, typename Terms>
__global__ void __launch_bounds__(kThreads)
    PartialSumsKernel(ChunkShape shape, Terms terms, double* partials) {
  constexpr int kWidth = Terms::kWidth;
  constexpr int kCols = 32 * kWidth;  // of a block
  __shared__ WarpSums<kCols> shared;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int own = static_cast<int>(threadIdx.x % 32) * kWidth;
  const int64_t first_col = static_cast<int64_t>(blockIdx.x) * kCols;
  const int64_t chunk = blockIdx.y;
  const int64_t first = chunk * shape.rows_per_chunk;
  const int64_t end = min(shape.rows, first + shape.rows_per_chunk);
  double sums[kSums][kWidth] = {};
  if (first_col + own < shape.cols) {
#pragma unroll 4
    for (int64_t row = first + warp; row < end; row += kWarps) {
      terms.Add(row, row * shape.cols + first_col + own, sums);
    }
  }
  for (int s = 0; s < kSums; ++s) {
    if (s > 0) __syncthreads();  // the sums before may still be read
    for (int e = 0; e < kWidth; ++e) shared.of_warp[warp][own + e] = sums[s][e];
    __syncthreads();
    for (int col = static_cast<int>(threadIdx.x); col < kCols; col += kThreads) {
      if (first_col + col >= shape.cols) continue;
      partials[(chunk * kSums + s) * shape.cols + first_col + col] = shared.Total(col);
    }
  }
}

struct Totals {
  float* at[2];
};

// partials [chunks, sums, cols]. A block takes 32 columns of one sum; its warps take chunks in
// turn. blockIdx.y is the sum.
template <typename Partial>
__global__ void __launch_bounds__(kThreads)
    AddPartialSumsKernel(const Partial* partials, int64_t chunks, int64_t cols, Totals totals) {
  __shared__ WarpSums<32> shared;
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t col = static_cast<int64_t>(blockIdx.x) * 32 + lane;
  const int s = static_cast<int>(blockIdx.y);
  double sum = 0;
  if (col < cols) {
#pragma unroll 8
    for (int64_t chunk = warp; chunk < chunks; chunk += kWarps) {
      sum += static_cast<double>(partials[(chunk * gridDim.y + s) * cols + col]);
    }
  }
  shared.of_warp[warp][lane] = sum;
  __syncthreads();
  if (warp > 0 || col >= cols) return;
  float* const first = s == 0 ? totals.at[0] : totals.at[1];  // an index would spill both
  if (first == nullptr) return;                               // of a bias that is not there
  float* const to = first + col;
  *to = static_cast<float>(static_cast<double>(*to) + shared.Total(lane));
}

template <typename Partial>
cudaError_t AddPartialSums(const Queue& queue, const Partial* partials, int64_t chunks,
                           int64_t sums, int64_t cols, const Totals& totals) {
  return Launch(AddPartialSumsKernel<Partial>,
                {.blocks = (cols + 31) / 32, .blocks_y = sums, .threads = kThreads}, queue.stream,
                partials, chunks, cols, totals);
}

template <int kSums, typename Terms>
cudaError_t AddColumnSums(const Queue& queue, const Terms& terms, int64_t rows, int64_t cols,
                          const Totals& totals) {
  if (rows == 0 || cols == 0) return cudaSuccess;
  const int64_t chunk_bytes = cols * kSums * static_cast<int64_t>(sizeof(double));
  const int64_t room = std::min(kMostChunks, queue.scratch_bytes / chunk_bytes);
  if (room < 1) return cudaErrorInvalidValue;
  constexpr int64_t kCols = 32 * Terms::kWidth;
  const int64_t blocks = (cols + kCols - 1) / kCols;
  const int64_t long_enough = (rows + kLeastRows - 1) / kLeastRows;
  const int64_t enough = (kBlocks + blocks - 1) / blocks;
  const int64_t wanted = std::clamp(std::min(long_enough, enough), int64_t{1}, room);
  const int64_t rows_per_chunk = (rows + wanted - 1) / wanted;
  const int64_t chunks = (rows + rows_per_chunk - 1) / rows_per_chunk;
  auto* const partials = static_cast<double*>(queue.scratch);
  const cudaError_t code = Launch(
      PartialSumsKernel<kSums, Terms>, {.blocks = blocks, .blocks_y = chunks, .threads = kThreads},
      queue.stream, ChunkShape{rows, cols, rows_per_chunk}, terms, partials);
  if (code != cudaSuccess) return code;
  return AddPartialSums(queue, partials, chunks, kSums, cols, totals);
}

template <typename T, int kWidth>
__device__ Pack<T, kWidth> PackAt(const T* data, int64_t at) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(data + at);
}

template <typename T, int kPackWidth>
struct BiasTerms {
  static constexpr int kWidth = kPackWidth;
  const T* dy;
  __device__ void Add(int64_t /*row*/, int64_t at, double (&sums)[1][kWidth]) const {
    const auto dys = PackAt<T, kWidth>(dy, at);
    for (int e = 0; e < kWidth; ++e) sums[0][e] += static_cast<double>(ToFloat(dys.at[e]));
  }
};

// Adds up the squares of a run of elements that starts `shift` columns into the first row.
struct SquareTerms {
  static constexpr int kWidth = 1;
  const float* gradient;
  int64_t shift;
  int64_t count;
  GradientScale scale;
  __device__ void Add(int64_t /*row*/, int64_t at, double (&sums)[1][1]) const {
    const int64_t i = at - shift;
    GradientScale own = scale;
    if (i < 0 || i >= count || !own.Load()) return;
    const double value = static_cast<double>(gradient[i] * static_cast<float>(own.value));
    sums[0][0] += value * value;
  }
};

template <typename T, int kPackWidth>
struct LayerNormTerms {
  static constexpr int kWidth = kPackWidth;
  const T* dy;
  const T* x;
  const float* mean;
  const float* rstd;
  __device__ void Add(int64_t row, int64_t at, double (&sums)[2][kWidth]) const {
    const auto dys = PackAt<T, kWidth>(dy, at);
    const auto xs = PackAt<T, kWidth>(x, at);
    const float row_mean = mean[row];
    const float row_rstd = rstd[row];
    for (int e = 0; e < kWidth; ++e) {
      const float g = ToFloat(dys.at[e]);
      sums[0][e] += static_cast<double>(g * ((ToFloat(xs.at[e]) - row_mean) * row_rstd));
      sums[1][e] += static_cast<double>(g);
    }
  }
};

template <typename T, int kPackWidth>
struct RmsNormTerms {
  static constexpr int kWidth = kPackWidth;
  const T* dy;
  const T* x;
  const float* rstd;
  __device__ void Add(int64_t row, int64_t at, double (&sums)[1][kWidth]) const {
    const auto dys = PackAt<T, kWidth>(dy, at);
    const auto xs = PackAt<T, kWidth>(x, at);
    const float row_rstd = rstd[row];
    for (int e = 0; e < kWidth; ++e) {
      sums[0][e] += static_cast<double>(ToFloat(dys.at[e]) * (ToFloat(xs.at[e]) * row_rstd));
    }
  }
};

float* Floats(View x) {
  return static_cast<float*>(x.data);
}

}  // namespace

cudaError_t QueueAddPartialSums(const Queue& queue, const float* partials, int64_t chunks,
                                int64_t sums, View first, View second) {
  return AddPartialSums(queue, partials, chunks, sums, first.elements(),
                        {{Floats(first), Floats(second)}});
}

cudaError_t QueueBiasGradient(const Queue& queue, View dy, View dbias) {
  return WithType(dy.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const from = static_cast<const T*>(dy.data);
    const Totals totals = {{Floats(dbias)}};
    if (HasWideRows<T>(dy)) {
      return AddColumnSums<1>(queue, BiasTerms<T, kWidest<T>>{from}, dy.rows, dy.cols, totals);
    }
    return AddColumnSums<1>(queue, BiasTerms<T, 1>{from}, dy.rows, dy.cols, totals);
  });
}

cudaError_t QueueColumnSquares(const Queue& queue, View scale, View gradient, int64_t shift,
                               View cols) {
  const int64_t count = gradient.elements();
  const int64_t rows = (shift + count + cols.elements() - 1) / cols.elements();
  const SquareTerms terms = {Floats(gradient), shift, count, ScaleAt(scale)};
  return AddColumnSums<1>(queue, terms, rows, cols.elements(), {{Floats(cols)}});
}

cudaError_t QueueLayerNormWeightGradient(const Queue& queue, View dy, View x, View mean, View rstd,
                                         View dweight, View dbias) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const dys = static_cast<const T*>(dy.data);
    const auto* const xs = static_cast<const T*>(x.data);
    const Totals totals = {{Floats(dweight), Floats(dbias)}};
    if (HasWideRows<T>(dy) && HasWideRows<T>(x)) {
      const LayerNormTerms<T, kWidest<T>> terms = {dys, xs, Floats(mean), Floats(rstd)};
      return AddColumnSums<2>(queue, terms, x.rows, x.cols, totals);
    }
    const LayerNormTerms<T, 1> terms = {dys, xs, Floats(mean), Floats(rstd)};
    return AddColumnSums<2>(queue, terms, x.rows, x.cols, totals);
  });
}

cudaError_t QueueRmsNormWeightGradient(const Queue& queue, View dy, View x, View rstd,
                                       View dweight) {
  return WithType(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto* const dys = static_cast<const T*>(dy.data);
    const auto* const xs = static_cast<const T*>(x.data);
    const Totals totals = {{Floats(dweight)}};
    if (HasWideRows<T>(dy) && HasWideRows<T>(x)) {
      const RmsNormTerms<T, kWidest<T>> terms = {dys, xs, Floats(rstd)};
      return AddColumnSums<1>(queue, terms, x.rows, x.cols, totals);
    }
    const RmsNormTerms<T, 1> terms = {dys, xs, Floats(rstd)};
    return AddColumnSums<1>(queue, terms, x.rows, x.cols, totals);
  });
}

}  // namespace weft
