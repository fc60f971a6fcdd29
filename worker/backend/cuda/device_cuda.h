// The CUDA device: memory, one stream on which all operations are queued, kernels (kernels.h) and
// matrix products (gemm.h). Beside the arena it holds fixed blocks: scratch for sums, a workspace
// for matrix products, pinned buffers for copies.
#pragma once
#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/device.h"

namespace weft {

// Partial sums of the widest matrices, and sums per row and head of attention.
inline constexpr int64_t kScratchBytes = int64_t{64} << 20;

// Opens device options.local_index of this host on the calling thread, which is the one that uses
// it. Each way in which that fails has a name (cuda_status.h).
BackendStatus OpenCudaDevice(const DeviceOptions& options, std::unique_ptr<Device>* device);

// Returns what the device queues its work on. REQUIRES: OpenCudaDevice opened it.
Queue QueueOf(const Device& device);

}  // namespace weft
