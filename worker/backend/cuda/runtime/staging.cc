#include "worker/backend/cuda/runtime/staging.h"

#include <algorithm>
#include <cstring>

namespace weft {

Staging::~Staging() {
  for (const Slot& slot : slots_) {
    if (slot.free != nullptr) cudaEventDestroy(slot.free);
    if (slot.data != nullptr) cudaFreeHost(slot.data);
  }
}

cudaError_t Staging::Open() {
  for (Slot& slot : slots_) {
    cudaError_t code = cudaMallocHost(&slot.data, static_cast<size_t>(kSlotBytes));
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(&slot.free, cudaEventDisableTiming);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

cudaError_t Staging::Take(Slot** slot) {
  *slot = &slots_[next_];
  next_ = (next_ + 1) % kSlots;
  return cudaEventSynchronize((*slot)->free);  // one that was never recorded counts as passed
}

cudaError_t Staging::In(void* to, const void* from, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kSlotBytes) {
    const auto size = static_cast<size_t>(std::min(kSlotBytes, bytes - at));
    Slot* slot = nullptr;
    cudaError_t code = Take(&slot);
    if (code != cudaSuccess) return code;
    std::memcpy(slot->data, static_cast<const char*>(from) + at, size);
    code = cudaMemcpyAsync(static_cast<char*>(to) + at, slot->data, size, cudaMemcpyHostToDevice,
                           stream_);
    if (code == cudaSuccess) code = cudaEventRecord(slot->free, stream_);
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

// Two copies are under way at a time: the device fills a slot while the host empties another.
cudaError_t Staging::Out(void* to, const void* from, int64_t bytes) {
  const int64_t pieces = (bytes + kSlotBytes - 1) / kSlotBytes;
  const auto size = [bytes](int64_t piece) {
    return static_cast<size_t>(std::min(kSlotBytes, bytes - piece * kSlotBytes));
  };
  Slot* before = nullptr;
  for (int64_t piece = 0; piece <= pieces; ++piece) {
    Slot* slot = nullptr;
    cudaError_t code = cudaSuccess;
    if (piece < pieces) {
      code = Take(&slot);
      if (code != cudaSuccess) return code;
      code = cudaMemcpyAsync(slot->data, static_cast<const char*>(from) + piece * kSlotBytes,
                             size(piece), cudaMemcpyDeviceToHost, stream_);
      if (code == cudaSuccess) code = cudaEventRecord(slot->free, stream_);
      if (code != cudaSuccess) return code;
    }
    if (before != nullptr) {
      code = cudaEventSynchronize(before->free);
      if (code != cudaSuccess) return code;
      std::memcpy(static_cast<char*>(to) + (piece - 1) * kSlotBytes, before->data, size(piece - 1));
    }
    before = slot;
  }
  return cudaSuccess;
}

}  // namespace weft
