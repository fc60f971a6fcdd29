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

// Chooses the device that OpenCudaDevice opens among the `count` that this process sees. Where that
// is one, it is that one, whatever the local index: who starts a process with one visible device
// (srun --gpus-per-task=1, a container) numbers them from 0 in each. InvalidArgument if there are
// several and none of that index.
BackendStatus ChooseDevice(const DeviceOptions& options, int count, int* index);

// Opens that device on the calling thread, which is the one that uses it. Each way in which that
// fails has a name (cuda_status.h).
BackendStatus OpenCudaDevice(const DeviceOptions& options, std::unique_ptr<Device>* device);

// Returns what the device queues its work on. REQUIRES: OpenCudaDevice opened it.
Queue QueueOf(const Device& device);

}  // namespace weft
