// Combine: the arithmetic of reductions among ranks that see each other's memory.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/comm.h"
#include "worker/backend/cuda/comm/local_block.h"

namespace weft {

// totals[i] = totals[i] op values[i], on the host. A not-a-number stays.
inline void CombineHost(ReduceOp op, const double* values, int count, double* totals) {
  for (int i = 0; i < count; ++i) {
    const double value = values[i];
    if (op == ReduceOp::kSum) {
      totals[i] += value;
    } else if (value > totals[i] || value != value) {
      totals[i] = value;
    }
  }
}

inline bool IsReducible(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBf16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

// out[i] = sources[0][i] op sources[1][i] op ..., from left to right, in f32, or of kF64 in f64.
// `out` may be one of the sources. REQUIRES: 1 <= ranks <= kMostLocalRanks.
cudaError_t QueueCombine(cudaStream_t stream, ReduceOp op, DType dtype, const void* const* sources,
                         int ranks, void* out, int64_t count);

// One slice of each rank, `stride_bytes` apart from `first` on; that of own_rank lies at `own`
// instead.
struct RankSlices {
  const void* first = nullptr;
  int64_t stride_bytes = 0;
  int ranks = 0;
  int own_rank = 0;
  void* own = nullptr;
};
// own[i] = slice 0's [i] op slice 1's [i] op ..., as above, of any number of ranks.
cudaError_t QueueCombineSlices(cudaStream_t stream, ReduceOp op, DType dtype,
                               const RankSlices& slices, int64_t count);

}  // namespace weft
