#include "tests/gpu/tested_api.h"
#include "worker/backend/cuda/device_cuda.h"
#include "worker/backend/cuda/transport_choice.h"

namespace weft {
namespace {

// All ranks share the one device.
BackendStatus OpenDevice(const DeviceOptions* options, Device** device) {
  DeviceOptions own = *options;
  own.local_index = 0;
  std::unique_ptr<Device> opened;
  const BackendStatus status = OpenCudaDevice(own, &opened);
  *device = opened.release();
  return status;
}

BackendStatus OpenComm(const CommOptions* options, Comm** comm) {
  std::unique_ptr<Comm> opened;
  const BackendStatus status = OpenCudaComm(*options, QueueOf(*options->device), &opened);
  *comm = opened.release();
  return status;
}

}  // namespace

const BackendApi* TestedApi() {
  static const BackendApi api = {
      .abi_version = kBackendAbiVersion,
      .name = "emulated cuda",
      .versions = "on the CPU",
      .open_device = OpenDevice,
      .close_device = [](Device* device) { delete device; },
      .open_comm = OpenComm,
      .close_comm = [](Comm* comm) { delete comm; },
  };
  return &api;
}

}  // namespace weft
