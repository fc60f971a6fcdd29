#include "worker/backend/cuda/comm/side_stream.h"

namespace weft {

SideStream::~SideStream() {
  for (cudaEvent_t event : done_) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  if (ready_ != nullptr) cudaEventDestroy(ready_);
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

cudaError_t SideStream::Open() {
  int least = 0;
  int greatest = 0;  // before what computes: its kernels are few and others wait for them
  cudaError_t code = cudaDeviceGetStreamPriorityRange(&least, &greatest);
  if (code != cudaSuccess) return code;
  code = cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest);
  if (code != cudaSuccess) return code;
  code = cudaEventCreateWithFlags(&ready_, cudaEventDisableTiming);
  for (cudaEvent_t& event : done_) {
    if (code != cudaSuccess) return code;
    code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
  }
  return code;
}

cudaError_t SideStream::Follow(cudaStream_t device) {
  const cudaError_t code = cudaEventRecord(ready_, device);
  return code == cudaSuccess ? cudaStreamWaitEvent(stream_, ready_, 0) : code;
}

cudaError_t SideStream::Join(cudaStream_t device, int64_t ticket) {
  return ticket == 0 ? cudaSuccess : cudaStreamWaitEvent(device, done_[Slot(ticket)], 0);
}

}  // namespace weft
