// Rows of the table by id, and their gradient in row order. Ids are cut into buckets of kIds
// neighbours. A block for each bucket lists the rows of the batch that have one of its ids, in
// their order; then one for each bucket and run of columns walks along that list, a thread for each
// pack of columns, and adds every row to the sum of its id. The sums are those of the CPU backend
// to the bit, without atomics. The ids of a microbatch are read twice for each bucket; they stay in
// the cache.
#include <algorithm>

#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/elements.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/map.h"

namespace weft {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kIds = 16;  // of a bucket
constexpr int kAddingThreads = 64;
constexpr int kRowsAtOnce = 8;  // that are read before they are added: an id may have thousands
constexpr int64_t kMostRows = (int64_t{1} << 31) / kIds;

struct Vocabulary {
  int64_t first_id;
  int64_t rows;
};

// `cols` is of packs, `count` the packs of all rows.
template <typename T, int kWidth>
__global__ void EmbedKernel(Vocabulary vocabulary, const int32_t* ids, const Pack<T, kWidth>* table,
                            const Pack<T, kWidth>* positions, const int32_t* position_ids,
                            Pack<T, kWidth>* out, int64_t count, int64_t cols) {
  for (int64_t i = FirstIndex(); i < count; i += IndexStride()) {
    const int64_t row = i / cols;
    const int64_t col = i % cols;
    const int64_t entry = ids[row] - vocabulary.first_id;
    const bool here = entry >= 0 && entry < vocabulary.rows;
    Pack<T, kWidth> values = {};
    if (here) values = table[entry * cols + col];
    if (positions != nullptr) {
      const Pack<T, kWidth> added = positions[position_ids[row] * cols + col];
      for (int e = 0; e < kWidth; ++e) {
        values.at[e] = FromFloat<T>(ToFloat(values.at[e]) + ToFloat(added.at[e]));
      }
    }
    out[i] = values;
  }
}

// The rows of each bucket, [begin[bucket], end[bucket]) of `rows`: kIds times the row, plus which
// of the bucket's ids it has.
struct Buckets {
  int32_t* begin;
  int32_t* end;
  int32_t* rows;
};

// A block per bucket, a stretch of the batch per warp: counts, then lists.
__global__ void __launch_bounds__(kThreads)
    ListRowsKernel(Vocabulary vocabulary, const int32_t* ids, int64_t count, Buckets buckets) {
  __shared__ int of_warp[kWarps];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t bucket = blockIdx.x;
  const int64_t first_id = vocabulary.first_id + bucket * kIds;
  const int64_t end_id = min(first_id + kIds, vocabulary.first_id + vocabulary.rows);
  const int64_t stretch = (count + kWarps * 32 - 1) / (kWarps * 32) * 32;
  const int64_t begin = min(count, warp * stretch);
  const int64_t end = min(count, begin + stretch);
  int before = 0;  // rows of earlier buckets
  int own = 0;
  for (int64_t at = begin + lane; at < end; at += 32) {
    const int64_t id = ids[at];
    before += id >= vocabulary.first_id && id < first_id ? 1 : 0;
    own += id >= first_id && id < end_id ? 1 : 0;
  }
  own = ReduceWarp(SumOf{}, own);
  if (lane == 0) of_warp[warp] = own;
  before = ReduceBlock(SumOf{}, before);  // behind whose barriers of_warp is there
  int to = before;
  int all = before;
  for (int w = 0; w < kWarps; ++w) {
    to += w < warp ? of_warp[w] : 0;
    all += of_warp[w];
  }
  if (threadIdx.x == 0) {
    buckets.begin[bucket] = before;
    buckets.end[bucket] = all;
  }
  for (int64_t at = begin; at < end; at += 32) {
    const int64_t id = at + lane < end ? ids[at + lane] : -1;
    const bool is_own = id >= first_id && id < end_id;
    const unsigned lanes = __ballot_sync(kAllLanes, is_own);
    if (is_own) {
      buckets.rows[to + __popc(lanes & ((1U << lane) - 1))] =
          static_cast<int32_t>((at + lane) * kIds + (id - first_id));
    }
    to += __popc(lanes);
  }
}

// blockIdx.x is the bucket, blockIdx.y the run of columns; `cols` is of packs. A thread is alone
// with its columns.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kAddingThreads)
    TableGradientKernel(Buckets buckets, const Pack<T, kWidth>* dout, float* dtable, int64_t cols) {
  __shared__ float sums[kIds][kAddingThreads][kWidth];
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t col = static_cast<int64_t>(blockIdx.y) * kAddingThreads + thread;
  if (col >= cols) return;
  const int64_t first_entry = static_cast<int64_t>(blockIdx.x) * kIds;
  const int32_t end = buckets.end[blockIdx.x];
  unsigned touched = 0;  // entries, the same for all threads
  for (int32_t at = buckets.begin[blockIdx.x]; at < end; at += kRowsAtOnce) {
    const int count = min(kRowsAtOnce, end - at);
    int entries[kRowsAtOnce] = {};
    Pack<T, kWidth> values[kRowsAtOnce] = {};
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (r >= count) continue;
      const int32_t listed = buckets.rows[at + r];
      entries[r] = listed % kIds;
      values[r] = dout[static_cast<int64_t>(listed / kIds) * cols + col];
    }
#pragma unroll
    for (int r = 0; r < kRowsAtOnce; ++r) {
      if (r >= count) continue;
      const int entry = entries[r];
      float* const to = sums[entry][thread];
      const bool is_first = (touched >> entry & 1U) == 0;
      const float* const so_far =
          is_first ? dtable + ((first_entry + entry) * cols + col) * kWidth : to;
      for (int e = 0; e < kWidth; ++e) to[e] = so_far[e] + ToFloat(values[r].at[e]);
      touched |= 1U << entry;
    }
  }
  for (int entry = 0; entry < kIds; ++entry) {
    if ((touched >> entry & 1U) == 0) continue;
    float* const to = dtable + ((first_entry + entry) * cols + col) * kWidth;
    for (int e = 0; e < kWidth; ++e) to[e] = sums[entry][thread][e];
  }
}

template <typename T, int kWidth>
cudaError_t AddToTable(const Queue& queue, View ids, View dout, int64_t first_id, View dtable) {
  const Vocabulary vocabulary = {first_id, dtable.rows};
  const auto* const of_rows = static_cast<const int32_t*>(ids.data);
  const int64_t count = (dtable.rows + kIds - 1) / kIds;
  if ((2 * count + dout.rows) * static_cast<int64_t>(sizeof(int32_t)) > queue.scratch_bytes ||
      dout.rows > kMostRows) {
    return cudaErrorInvalidValue;
  }
  auto* const scratch = static_cast<int32_t*>(queue.scratch);
  const Buckets buckets = {scratch, scratch + count, scratch + 2 * count};
  const cudaError_t code = Launch(ListRowsKernel, {.blocks = count, .threads = kThreads},
                                  queue.stream, vocabulary, of_rows, dout.rows, buckets);
  if (code != cudaSuccess) return code;
  const int64_t cols = dout.cols / kWidth;
  return Launch(TableGradientKernel<T, kWidth>,
                {.blocks = count,
                 .blocks_y = (cols + kAddingThreads - 1) / kAddingThreads,
                 .threads = kAddingThreads},
                queue.stream, buckets, static_cast<const Pack<T, kWidth>*>(dout.data),
                static_cast<float*>(dtable.data), cols);
}

template <typename T>
cudaError_t AddToTable(const Queue& queue, View ids, View dout, int64_t first_id, View dtable) {
  constexpr int kWidth = kWidest<T>;
  if (dout.cols % kWidth == 0 && IsWide(dout.data)) {
    return AddToTable<T, kWidth>(queue, ids, dout, first_id, dtable);
  }
  return AddToTable<T, 1>(queue, ids, dout, first_id, dtable);
}

template <typename T, int kWidth>
cudaError_t Embed(const Queue& queue, View ids, View table, int64_t first_id, View positions,
                  View position_ids, View out) {
  using Wide = Pack<T, kWidth>;
  const int64_t packs = out.elements() / kWidth;
  return Launch(EmbedKernel<T, kWidth>, {.blocks = MapBlocks(packs)}, queue.stream,
                Vocabulary{first_id, table.rows}, static_cast<const int32_t*>(ids.data),
                static_cast<const Wide*>(table.data), static_cast<const Wide*>(positions.data),
                static_cast<const int32_t*>(position_ids.data), static_cast<Wide*>(out.data), packs,
                out.cols / kWidth);
}

}  // namespace

cudaError_t QueueEmbed(const Queue& queue, View ids, View table, int64_t first_id, View positions,
                       View position_ids, View out) {
  return WithType(out.dtype, [&](auto zero) {
    using T = decltype(zero);
    constexpr int kWidth = kWidest<T>;
    if (out.cols % kWidth == 0 && IsWide(table.data) && IsWide(positions.data) &&
        IsWide(out.data)) {
      return Embed<T, kWidth>(queue, ids, table, first_id, positions, position_ids, out);
    }
    return Embed<T, 1>(queue, ids, table, first_id, positions, position_ids, out);
  });
}

// Learned positions are a table like any other.
cudaError_t QueueEmbedGradient(const Queue& queue, View ids, View dout, int64_t first_id,
                               View position_ids, View dtable, View dpositions) {
  return WithType(dout.dtype, [&](auto zero) {
    using T = decltype(zero);
    const cudaError_t code = AddToTable<T>(queue, ids, dout, first_id, dtable);
    if (code != cudaSuccess || dpositions.data == nullptr) return code;
    return AddToTable<T>(queue, position_ids, dout, 0, dpositions);
  });
}

}  // namespace weft
