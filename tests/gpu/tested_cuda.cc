// The operations of the CUDA backend, on a device: through its door, as a worker uses it.
#include "tests/worker/backend/tested_backend.h"
#include "worker/backend/loader.h"

namespace weft {

std::vector<std::string> TestedBackends() {
  return {"cuda"};
}

std::unique_ptr<Device, void (*)(Device*)> OpenTested(const std::string& backend) {
  static const absl::StatusOr<const BackendApi*> api = LoadBackend(BackendKind::kCuda);
  const DeviceOptions options{.attention =
                                  backend == "cudnn" ? AttentionKind::kAuto : AttentionKind::kOwn};
  Device* device = nullptr;
  if (!api.ok() || !(*api)->open_device(&options, &device).ok()) return {nullptr, nullptr};
  return {device, (*api)->close_device};
}

}  // namespace weft
