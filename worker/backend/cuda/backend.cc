// The door of libweft_cuda.so.
#include "worker/backend/backend.h"

#include <cublasLt.h>
#include <cuda_runtime.h>

#include <array>
#include <cstdio>
#include <memory>

#include "worker/backend/cuda/attention/attention_cudnn.h"
#include "worker/backend/cuda/comm/nccl_library.h"
#include "worker/backend/cuda/comm/transport_choice.h"
#include "worker/backend/cuda/device_cuda.h"
#include "worker/backend/cuda/runtime/cuda_status.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

BackendStatus DeviceCount(int* count) {
  *count = 0;
  const cudaError_t code = cudaGetDeviceCount(count);
  if (code == cudaErrorNoDevice) *count = 0;
  return code == cudaErrorNoDevice ? BackendStatus{} : FromCuda(code, "cudaGetDeviceCount");
}

BackendStatus DescribeDevice(int local_index, DeviceDescription* description) {
  int count = 0;
  if (const BackendStatus s = DeviceCount(&count); !s.ok()) return s;
  if (local_index < 0 || local_index >= count) {
    return Failure(kInvalidArgument, "cuda device %d does not exist; this host has %d, from 0",
                   local_index, count);
  }
  cudaDeviceProp properties;
  if (const BackendStatus s =
          FromCuda(cudaGetDeviceProperties(&properties, local_index), "cudaGetDeviceProperties");
      !s.ok()) {
    return s;
  }
  std::snprintf(description->name, sizeof(description->name), "%.100s (sm_%d%d)", properties.name,
                properties.major, properties.minor);
  description->memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  description->compute_units = properties.multiProcessorCount;
  return {};
}

BackendStatus OpenDevice(const DeviceOptions* options, Device** device) {
  std::unique_ptr<Device> opened;
  if (const BackendStatus s = OpenCudaDevice(*options, &opened); !s.ok()) return s;
  *device = opened.release();
  return {};
}
void CloseDevice(Device* device) {
  delete device;
}
BackendStatus OpenComm(const CommOptions* options, Comm** comm) {
  if (options->device == nullptr || options->rendezvous[0] != '/') {
    return Failure(kInvalidArgument,
                   "the cuda backend's communicator needs a device and a rendezvous; only training "
                   "has them");
  }
  std::unique_ptr<Comm> opened;
  if (auto s = OpenCudaComm(*options, QueueOf(*options->device), &opened); !s.ok()) return s;
  *comm = opened.release();
  return {};
}
void CloseComm(Comm* comm) {
  delete comm;
}

// "CUDA 13.0, cuBLASLt 13.0.0, cuDNN 9.19.0, NCCL 2.28.9"; "..., no cuDNN, no NCCL" where they do
// not load. CUDA counts 1000 a major version, the others 10000.
const char* Versions() {
  static const std::array<char, 96> versions = [] {
    int cuda = 0;
    cudaRuntimeGetVersion(&cuda);
    const bool has_cudnn = CudnnVersion()[0] != '\0';
    const auto cublas = static_cast<int>(cublasLtGetVersion());
    std::array<char, 96> text = {};
    const int at = std::snprintf(text.data(), text.size(), "CUDA %d.%d, cuBLASLt %d.%d.%d, %s%s, ",
                                 cuda / 1000, cuda % 1000 / 10, cublas / 10000, cublas / 100 % 100,
                                 cublas % 100, has_cudnn ? "cuDNN " : "no cuDNN", CudnnVersion());
    const auto rest = text.size() - static_cast<size_t>(at);
    const NcclLibrary* nccl = nullptr;
    if (LoadNccl(&nccl).ok()) {
      std::snprintf(text.data() + at, rest, "NCCL %s", NcclVersionText(nccl->version).c_str());
    } else {
      std::snprintf(text.data() + at, rest, "no NCCL");
    }
    return text;
  }();
  return versions.data();
}

}  // namespace
}  // namespace weft

// NOLINTNEXTLINE(readability-identifier-naming): the name that every backend exports.
extern "C" __attribute__((visibility("default"))) const weft::BackendApi* weft_backend(
    int abi_version) {
  if (abi_version != weft::kBackendAbiVersion) return nullptr;
  static const weft::BackendApi api = {
      .abi_version = weft::kBackendAbiVersion,
      .name = "cuda",
      .versions = weft::Versions(),
      .device_count = weft::DeviceCount,
      .describe_device = weft::DescribeDevice,
      .open_device = weft::OpenDevice,
      .close_device = weft::CloseDevice,
      .open_comm = weft::OpenComm,
      .close_comm = weft::CloseComm,
  };
  return &api;
}
