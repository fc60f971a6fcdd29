#include <cstdio>
#include <cstdlib>

#include "tests/gpu/tested_api.h"
#include "worker/backend/cuda/comm/transport_choice.h"
#include "worker/backend/cuda/device_cuda.h"

namespace weft {
namespace {

// Counts the devices as a probe asks for them: two where ranks have one each
// (WEFT_EMULATED_DEVICES, memory.cc).
BackendStatus DeviceCount(int* count) {
  *count = std::getenv("WEFT_EMULATED_DEVICES") == nullptr ? 1 : 2;
  return {};
}

BackendStatus DescribeDevice(int local_index, DeviceDescription* description) {
  cudaDeviceProp properties;
  cudaGetDeviceProperties(&properties, local_index);
  std::snprintf(description->name, sizeof description->name, "%.100s device %d", properties.name,
                local_index);
  description->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  description->compute_units = properties.multiProcessorCount;
  return {};
}

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
      .device_count = DeviceCount,
      .describe_device = DescribeDevice,
      .open_device = OpenDevice,
      .close_device = [](Device* device) { delete device; },
      .open_comm = OpenComm,
      .close_comm = [](Comm* comm) { delete comm; },
  };
  return &api;
}

}  // namespace weft
