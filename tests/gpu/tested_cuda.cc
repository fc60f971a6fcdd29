// The operations of the CUDA backend, on a device: through its door, as a worker uses it.
#include <gtest/gtest.h>

#include "tests/gpu/missing_device.h"
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
  if (!api.ok() || !MissingDevice(**api).empty()) return {nullptr, nullptr};
  const BackendStatus opened = (*api)->open_device(&options, &device);
  if (!opened.ok()) ADD_FAILURE() << opened.text;
  return {device, (*api)->close_device};
}

}  // namespace weft
