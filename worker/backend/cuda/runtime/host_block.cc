#include "worker/backend/cuda/runtime/host_block.h"

#include <cstring>

namespace weft {

HostBlock::~HostBlock() {
  for (const cudaEvent_t event : {worked_, fetched_, stored_}) {
    if (event != nullptr) cudaEventDestroy(event);
  }
  for (const cudaStream_t stream : {in_, out_}) {
    if (stream != nullptr) cudaStreamDestroy(stream);
  }
  if (data_ != nullptr) cudaFreeHost(data_);
}

cudaError_t HostBlock::Open(int64_t bytes) {
  void* data = nullptr;
  cudaError_t code = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (code != cudaSuccess) return code;
  data_ = static_cast<char*>(data);
  bytes_ = bytes;
  std::memset(data, 0, static_cast<size_t>(bytes));
  for (cudaStream_t* stream : {&in_, &out_}) {
    if (code == cudaSuccess) code = cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking);
  }
  for (cudaEvent_t* event : {&worked_, &fetched_, &stored_}) {
    if (code == cudaSuccess) code = cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  }
  return code;
}

bool HostBlock::Holds(const void* data) const {
  const char* const at = static_cast<const char*>(data);
  return data_ <= at && at < data_ + bytes_;
}

cudaError_t HostBlock::After(cudaStream_t before, cudaEvent_t event, cudaStream_t stream) {
  const cudaError_t code = cudaEventRecord(event, before);
  return code != cudaSuccess ? code : cudaStreamWaitEvent(stream, event, 0);
}

cudaError_t HostBlock::Fetch(void* to, const void* from, int64_t bytes) {
  cudaError_t code = After(work_, worked_, in_);
  if (code == cudaSuccess) code = After(out_, stored_, in_);
  if (code != cudaSuccess) return code;
  return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, in_);
}

cudaError_t HostBlock::Store(void* to, const void* from, int64_t bytes) {
  const cudaError_t code = After(work_, worked_, out_);
  if (code != cudaSuccess) return code;
  return cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, out_);
}

cudaError_t HostBlock::Await() {
  const cudaError_t code = After(in_, fetched_, work_);
  return code != cudaSuccess ? code : After(out_, stored_, work_);
}

cudaError_t HostBlock::Synchronize() {
  const cudaError_t code = Await();
  return code != cudaSuccess ? code : cudaStreamSynchronize(work_);
}

}  // namespace weft
