#include "worker/backend/cuda/runtime/device_memory.h"

#include <cuda_runtime.h>

#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

constexpr int64_t kAlignment = 4096;

// To the next address that is aligned.
int64_t OffsetOf(const void* block) {
  const auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(block) % kAlignment);
  return (kAlignment - past) % kAlignment;
}

}  // namespace

BackendStatus DeviceMemory::Allocate(int64_t bytes, void** data) {
  size_t free = 0;
  size_t total = 0;
  const BackendStatus asked = FromCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  if (!asked.ok()) return asked;
  if (bytes <= 0 || bytes > static_cast<int64_t>(free)) {
    return Failure(kFailedPrecondition,
                   "cuda: %lld bytes are asked for, %lld of the device's %lld are free; nvidia-smi "
                   "shows who holds the rest",
                   static_cast<long long>(bytes), static_cast<long long>(free),
                   static_cast<long long>(total));
  }
  // Large blocks are aligned to more than it promises; others are asked for once more, with room.
  void* block = nullptr;
  cudaError_t code = cudaMalloc(&block, static_cast<size_t>(bytes));
  if (code == cudaSuccess && OffsetOf(block) != 0) {
    cudaFree(block);
    code = cudaMalloc(&block, static_cast<size_t>(bytes + kAlignment));
  }
  if (code != cudaSuccess) {
    cudaGetLastError();  // running out of memory is no lasting error
    return FromCuda(code, "allocating the arena");
  }
  *data = static_cast<char*>(block) + OffsetOf(block);
  blocks_[*data] = block;
  return {};
}

BackendStatus DeviceMemory::Free(void* data) {
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return {};
  const cudaError_t code = cudaFree(found->second);
  blocks_.erase(found);
  return FromCuda(code, "cudaFree");
}

void DeviceMemory::FreeAll() {
  for (const auto& [data, block] : blocks_) cudaFree(block);
  blocks_.clear();
}

BackendStatus DeviceMemory::UsedBytes(int64_t* bytes) {
  size_t free = 0;
  size_t total = 0;
  const BackendStatus asked = FromCuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  *bytes = asked.ok() ? static_cast<int64_t>(total - free) : 0;
  return asked;
}

}  // namespace weft
