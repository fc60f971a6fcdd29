// Combine: the arithmetic of reductions among ranks that see each other's memory.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "worker/backend/comm.h"
#include "worker/backend/cuda/local_block.h"

namespace weft {

// out[i] = sources[0][i] op sources[1][i] op ..., from left to right, in f32. `out` may be one of
// the sources. REQUIRES: 1 <= ranks <= kMostLocalRanks.
cudaError_t QueueCombine(cudaStream_t stream, ReduceOp op, DType dtype, const void* const* sources,
                         int ranks, void* out, int64_t count);

}  // namespace weft
