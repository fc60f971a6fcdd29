// The operations of the CUDA backend, on the CPU.
#include "tests/gpu/emulation/threads.h"
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {

// The same threads in the opposite order: what needs a barrier and has none differs.
std::vector<std::string> TestedBackends() {
  return {"emulated_cuda", "emulated_cuda_descending"};
}

std::unique_ptr<Device, void (*)(Device*)> OpenTested(const std::string& backend) {
  emulation::SetOrder(backend == "emulated_cuda_descending" ? emulation::Order::kDescending
                                                            : emulation::Order::kAscending);
  const DeviceOptions options{.attention =
                                  backend == "cudnn" ? AttentionKind::kAuto : AttentionKind::kOwn};
  std::unique_ptr<Device> device;
  if (!OpenCudaDevice(options, &device).ok()) device = nullptr;
  return {device.release(), [](Device* opened) { delete opened; }};
}

}  // namespace weft
