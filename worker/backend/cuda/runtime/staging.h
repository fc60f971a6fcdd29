// Staging: copies between host arrays and the device by way of pinned buffers, so that the host
// does not wait for the device when it hands data over, and large copies run at the link's speed.
// Used by one thread.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace weft {

class Staging {
 public:
  static constexpr int64_t kSlotBytes = int64_t{4} << 20;

  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  cudaError_t Open();

  // Queues a copy; `from` may be changed as soon as this returns.
  cudaError_t In(void* to, const void* from, int64_t bytes);
  // Waits for all queued work; once, if it is no longer than a buffer.
  cudaError_t Out(void* to, const void* from, int64_t bytes);

 private:
  static constexpr int kSlots = 4;

  struct Slot {
    void* data = nullptr;
    cudaEvent_t free = nullptr;  // passed when the device has read it
  };

  // The one that the device is through with first, once it is.
  cudaError_t Take(Slot** slot);

  cudaStream_t stream_;
  Slot slots_[kSlots];
  int next_ = 0;
};

}  // namespace weft
