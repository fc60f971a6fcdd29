// HostBlock: pinned host memory of a worker and the copies between it and the device, which run on
// streams of their own, one a direction: a link carries both at once, and the device computes
// meanwhile. Device::Fetch says what waits for what. Used by one thread.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace weft {

class HostBlock {
 public:
  explicit HostBlock(cudaStream_t work) : work_(work) {}
  ~HostBlock();
  HostBlock(const HostBlock&) = delete;
  HostBlock& operator=(const HostBlock&) = delete;

  // Zeroed. Once.
  cudaError_t Open(int64_t bytes);
  void* data() const { return data_; }
  bool Holds(const void* data) const;

  cudaError_t Fetch(void* to, const void* from, int64_t bytes);
  cudaError_t Store(void* to, const void* from, int64_t bytes);
  cudaError_t Await();
  // The host waits for all copies, and for the work before them.
  cudaError_t Synchronize();

 private:
  // `stream` goes on when all that `before` has now is done.
  cudaError_t After(cudaStream_t before, cudaEvent_t event, cudaStream_t stream);

  cudaStream_t work_;
  cudaStream_t in_ = nullptr;
  cudaStream_t out_ = nullptr;
  cudaEvent_t worked_ = nullptr;
  cudaEvent_t fetched_ = nullptr;
  cudaEvent_t stored_ = nullptr;
  char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace weft
