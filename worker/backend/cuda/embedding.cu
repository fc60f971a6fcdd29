// Rows of the table by id, and their gradient in row order: the first row of the batch that has an
// id walks on over the ids behind it and adds up the rows that have the same, one after the other.
// The sums are those of the CPU backend to the bit, without atomics and without a sort. The walk
// reads the ids of a whole micro-batch once for each different id; they stay in the cache.
#include "worker/backend/cuda/elements.h"
#include "worker/backend/cuda/kernels.h"
#include "worker/backend/cuda/map.h"

namespace weft {
namespace {

constexpr int kThreads = 256;

struct Vocabulary {
  int64_t first_id;
  int64_t rows;
};

template <typename T>
__global__ void EmbedKernel(Vocabulary vocabulary, const int32_t* ids, const T* table,
                            const T* positions, const int32_t* position_ids, T* out, int64_t rows,
                            int64_t cols) {
  for (int64_t i = FirstIndex(); i < rows * cols; i += IndexStride()) {
    const int64_t row = i / cols;
    const int64_t col = i % cols;
    const int64_t entry = ids[row] - vocabulary.first_id;
    const bool here = entry >= 0 && entry < vocabulary.rows;
    float value = here ? ToFloat(table[entry * cols + col]) : 0.0F;
    if (positions != nullptr) value += ToFloat(positions[position_ids[row] * cols + col]);
    out[i] = FromFloat<T>(value);
  }
}

// Whether any of ids[begin..end) is `id`; the same answer for all threads of the block.
__device__ bool Occurs(const int32_t* ids, int64_t begin, int64_t end, int32_t id) {
  __shared__ int found;
  if (threadIdx.x == 0) found = 0;
  __syncthreads();
  for (int64_t first = begin; first < end; first += kThreads) {
    const int64_t at = first + threadIdx.x;
    if (at < end && ids[at] == id) found = 1;
    __syncthreads();
    const bool done = found != 0;
    __syncthreads();  // before another thread can write it again
    if (done) return true;
  }
  return false;
}

// blockIdx.x is a row of the batch, blockIdx.y a block of columns.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    TableGradientKernel(Vocabulary vocabulary, const int32_t* ids, const T* dout, float* dtable,
                        int64_t rows, int64_t cols) {
  __shared__ unsigned matches[kThreads / 32];
  const int64_t row = blockIdx.x;
  const int32_t id = ids[row];
  const int64_t entry = id - vocabulary.first_id;
  if (entry < 0 || entry >= vocabulary.rows || Occurs(ids, 0, row, id)) return;
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kThreads + threadIdx.x;
  const bool has_col = col < cols;
  float sum = has_col ? dtable[entry * cols + col] : 0.0F;
  for (int64_t first = row; first < rows; first += kThreads) {
    const int64_t at = first + threadIdx.x;
    const unsigned lanes = __ballot_sync(0xffffffffU, at < rows && ids[at] == id);
    if (threadIdx.x % 32 == 0) matches[threadIdx.x / 32] = lanes;
    __syncthreads();
    for (int warp = 0; warp < kThreads / 32; ++warp) {
      for (unsigned left = matches[warp]; left != 0; left &= left - 1) {
        const int64_t match = first + warp * 32 + __ffs(static_cast<int>(left)) - 1;
        if (has_col) sum += ToFloat(dout[match * cols + col]);
      }
    }
    __syncthreads();  // before the next ballot overwrites the matches
  }
  if (has_col) dtable[entry * cols + col] = sum;
}

template <typename T>
cudaError_t LaunchTableGradient(const Queue& queue, View ids, View dout, int64_t first_id,
                                View dtable) {
  return Launch(
      TableGradientKernel<T>,
      {.blocks = dout.rows, .blocks_y = (dout.cols + kThreads - 1) / kThreads, .threads = kThreads},
      queue.stream, Vocabulary{first_id, dtable.rows}, static_cast<const int32_t*>(ids.data),
      static_cast<const T*>(dout.data), static_cast<float*>(dtable.data), dout.rows, dout.cols);
}

}  // namespace

cudaError_t QueueEmbed(const Queue& queue, View ids, View table, int64_t first_id, View positions,
                       View position_ids, View out) {
  return WithType(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    return Launch(EmbedKernel<T>, {.blocks = MapBlocks(out.elements())}, queue.stream,
                  Vocabulary{first_id, table.rows}, static_cast<const int32_t*>(ids.data),
                  static_cast<const T*>(table.data), static_cast<const T*>(positions.data),
                  static_cast<const int32_t*>(position_ids.data), static_cast<T*>(out.data),
                  out.rows, out.cols);
  });
}

// Learned positions are a table like any other.
cudaError_t QueueEmbedGradient(const Queue& queue, View ids, View dout, int64_t first_id,
                               View position_ids, View dtable, View dpositions) {
  return WithType(dout.dtype, [&](auto zero) {
    using T = decltype(zero);
    const cudaError_t code = LaunchTableGradient<T>(queue, ids, dout, first_id, dtable);
    if (code != cudaSuccess || dpositions.data == nullptr) return code;
    return LaunchTableGradient<T>(queue, position_ids, dout, 0, dpositions);
  });
}

}  // namespace weft
