// Where the documents of packed sequences lie, as cuDNN's attention asks for it. One block: it
// reads 4 bytes a token, of which attention itself reads thousands.
#include "worker/backend/cuda/kernels/block_reduce.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/cuda/kernels/launch.h"

namespace weft {
namespace {

constexpr int kWarps = 32;
constexpr int kThreads = 32 * kWarps;

struct Rows {
  const int32_t* first_visible;
  int64_t count;
  int64_t seq_len;

  __device__ bool StartsDocument(int64_t row) const {
    return row < count && first_visible[row] == row % seq_len;
  }
};

struct Widths {
  int64_t query, key, heads;
};

__device__ void PutOffsets(const DocumentTable& table, const Widths& widths, int64_t document,
                           int64_t row) {
  table.query_offsets[document] = row * widths.query;
  table.key_offsets[document] = row * widths.key;
  table.statistic_offsets[document] = row * widths.heads;
}

// Each warp lists the starts of a stretch of rows, behind those of the warps before.
__global__ void __launch_bounds__(kThreads)
    DocumentTableKernel(Rows rows, Widths widths, int64_t documents, DocumentTable table) {
  __shared__ int of_warp[kWarps];
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int64_t stretch = (rows.count + kThreads - 1) / kThreads * 32;
  const int64_t begin = min(rows.count, warp * stretch);
  const int64_t end = min(rows.count, begin + stretch);
  int own = 0;
  for (int64_t row = begin + lane; row < end; row += 32) own += rows.StartsDocument(row) ? 1 : 0;
  own = ReduceWarp(SumOf{}, own);
  if (lane == 0) of_warp[warp] = own;
  __syncthreads();
  int64_t to = 0;
  int64_t all = 0;
  for (int w = 0; w < kWarps; ++w) {
    to += w < warp ? of_warp[w] : 0;
    all += of_warp[w];
  }
  for (int64_t first = begin; first < end; first += 32) {
    const int64_t row = first + lane;
    const bool starts = row < end && rows.StartsDocument(row);
    const unsigned lanes = __ballot_sync(kAllLanes, starts);
    const int64_t document = to + __popc(lanes & ((1U << lane) - 1));
    if (starts && document <= documents) PutOffsets(table, widths, document, row);
    to += __popc(lanes);
  }
  for (int64_t document = all + threadIdx.x; document <= documents; document += kThreads) {
    PutOffsets(table, widths, document, rows.count);
  }
  __syncthreads();  // all offsets are there
  for (int64_t document = threadIdx.x; document < documents; document += kThreads) {
    const int64_t* const offset = table.statistic_offsets + document;
    table.lengths[document] = static_cast<int32_t>((offset[1] - offset[0]) / widths.heads);
  }
}

}  // namespace

cudaError_t QueueDocumentTable(const Queue& queue, const AttentionShape& shape, View first_visible,
                               const DocumentTable& table) {
  const Rows rows = {.first_visible = static_cast<const int32_t*>(first_visible.data),
                     .count = shape.batch * shape.seq_len,
                     .seq_len = shape.seq_len};
  const Widths widths = {.query = shape.heads * shape.head_dim,
                         .key = shape.kv_heads * shape.head_dim,
                         .heads = shape.heads};
  return Launch(DocumentTableKernel, {.threads = kThreads}, queue.stream, rows, widths,
                shape.documents, table);
}

}  // namespace weft
