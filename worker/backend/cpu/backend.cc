// The door of libweft_cpu.so. A CPU "device" is a processor of this process's affinity mask.
#include "worker/backend/backend.h"

#include <cblas.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

#include "worker/backend/cpu/comm/collectives.h"
#include "worker/backend/cpu/comm/mpi_transport.h"
#include "worker/backend/cpu/device_cpu.h"
#include "worker/backend/cpu/host/memory.h"
#include "worker/backend/cpu/kernels/narrow_matmul.h"
#include "worker/backend/failure.h"

namespace weft {
namespace {

BackendStatus DeviceCount(int* count) {
  *count = ProcessorCount();
  return {};
}

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "x86-64 processor";
}

// All processors share the memory, so each is described with all of it.
BackendStatus DescribeDevice(int local_index, DeviceDescription* description) {
  if (local_index < 0 || local_index >= ProcessorCount()) {
    return Failure(kInvalidArgument, "cpu device %d does not exist; use 0 to %d", local_index,
                   ProcessorCount() - 1);
  }
  std::snprintf(description->name, sizeof(description->name), "%s", ProcessorName().c_str());
  description->memory_bytes = MemoryLimitBytes();
  return {};
}

// local_index is not looked at: more workers than processors are fine, they share.
BackendStatus OpenDevice(const DeviceOptions* options, Device** device) {
  *device = MakeCpuDevice(*options).release();
  return {};
}

void CloseDevice(Device* device) {
  delete device;
}

BackendStatus OpenComm(const CommOptions* options, Comm** comm) {
  std::unique_ptr<Transport> transport;
  if (BackendStatus s = OpenMpiTransport(options->init_timeout_ms, &transport); !s.ok()) return s;
  *comm = MakeCollectives(std::move(transport), *options).release();
  return {};
}

void CloseComm(Comm* comm) {
  delete comm;
  FinalizeMpi();
}

// "OpenBLAS 0.3.21 ..." begins its own configuration string, which also names build options.
const char* Versions() {
  static const std::array<char, 160> versions = [] {
    const std::string config = openblas_get_config();
    const size_t end = config.find(' ', config.find(' ') + 1);
    std::array<char, 160> text = {};
    std::snprintf(text.data(), text.size(), "%s (%s), %s, %s", config.substr(0, end).c_str(),
                  openblas_get_corename(), NarrowMatMulVersion(), MpiVersion());
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
      .name = "cpu",
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
