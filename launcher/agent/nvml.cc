#include "launcher/agent/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plan/search/describe.h"

namespace weft {
namespace {

// From NVIDIA's NVML API reference (docs.nvidia.com/deploy/nvml-api, nvml.h): these functions, and
// the layout of what they fill. All return 0 for success.
using Device = void*;
struct Memory {  // nvmlMemory_t
  unsigned long long total, free, used;
};
struct MemoryWithReserved {  // nvmlMemory_v2_t; the driver's own share is counted apart
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct ProcessInfo {  // nvmlProcessInfo_t of nvmlDeviceGetComputeRunningProcesses_v3
  unsigned pid;
  unsigned long long used_bytes;  // all ones: not known
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned kMemoryVersion = sizeof(MemoryWithReserved) | (2u << 24);
constexpr int kSuccess = 0;
constexpr int kInsufficientSize = 7;
constexpr unsigned kMostUsers = 1024;

// Nvml is the library, initialised; all members are null where something of it is missing.
class Nvml {
 public:
  explicit Nvml(const std::string& path) {
    handle_ = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle_ == nullptr) return;
    Find("nvmlShutdown", shutdown_);
    Find("nvmlDeviceGetHandleByPciBusId_v2", by_address_);
    Find("nvmlDeviceGetMemoryInfo", memory_);
    Find("nvmlDeviceGetMemoryInfo_v2", memory_with_reserved_);
    Find("nvmlDeviceGetComputeRunningProcesses_v3", processes_);
    int (*init)() = nullptr;
    Find("nvmlInit_v2", init);
    is_open_ =
        init != nullptr && shutdown_ != nullptr && by_address_ != nullptr && init() == kSuccess;
  }
  ~Nvml() {
    if (is_open_) shutdown_();
    if (handle_ != nullptr) dlclose(handle_);
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  bool is_open() const { return is_open_; }

  void Describe(proto::Gpu& gpu) const {
    Device device = nullptr;
    if (by_address_(gpu.pci_address().c_str(), &device) != kSuccess) return;
    DescribeMemory(device, gpu);
    if (gpu.memory_bytes() > 0) DescribeUsers(device, gpu);
  }

 private:
  template <typename Function>
  void Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
  }

  // Memory that processes hold is used; what the driver keeps counts as free with the newer
  // function, as used with the older one.
  void DescribeMemory(Device device, proto::Gpu& gpu) const {
    MemoryWithReserved both = {};
    both.version = kMemoryVersion;
    if (memory_with_reserved_ != nullptr && memory_with_reserved_(device, &both) == kSuccess) {
      gpu.set_memory_bytes(static_cast<int64_t>(both.total));
      gpu.set_free_bytes(static_cast<int64_t>(both.total - std::min(both.used, both.total)));
      return;
    }
    Memory memory = {};
    if (memory_ == nullptr || memory_(device, &memory) != kSuccess) return;
    gpu.set_memory_bytes(static_cast<int64_t>(memory.total));
    gpu.set_free_bytes(static_cast<int64_t>(memory.free));
  }

  void DescribeUsers(Device device, proto::Gpu& gpu) const {
    if (processes_ == nullptr) return;
    std::vector<ProcessInfo> users(16);
    auto count = static_cast<unsigned>(users.size());
    int code = processes_(device, &count, users.data());
    if (code == kInsufficientSize && count <= kMostUsers) {
      users.resize(count + 16);
      count = static_cast<unsigned>(users.size());
      code = processes_(device, &count, users.data());
    }
    if (code != kSuccess) return;
    users.resize(std::min<size_t>(count, users.size()));
    for (const ProcessInfo& each : users) {
      proto::GpuUser& user = *gpu.add_users();
      user.set_pid(each.pid);
      std::ifstream comm(absl::StrCat("/proc/", each.pid, "/comm"));
      std::getline(comm, *user.mutable_name());
      if (each.used_bytes != ~0ull) user.set_bytes(static_cast<int64_t>(each.used_bytes));
    }
  }

  void* handle_ = nullptr;
  bool is_open_ = false;
  int (*shutdown_)() = nullptr;
  int (*by_address_)(const char*, Device*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*memory_with_reserved_)(Device, MemoryWithReserved*) = nullptr;
  int (*processes_)(Device, unsigned*, ProcessInfo*) = nullptr;
};

}  // namespace

void DescribeGpuMemory(const std::string& library, proto::Host* host) {
  if (host->gpus_size() == 0) return;
  const Nvml nvml(library);
  if (!nvml.is_open()) return;
  for (proto::Gpu& gpu : *host->mutable_gpus()) nvml.Describe(gpu);
}

const proto::Gpu* PoorestGpu(const proto::Host& host, absl::Span<const int> used) {
  const proto::Gpu* poorest = nullptr;
  for (int i = 0; i < host.gpus_size(); ++i) {
    const proto::Gpu& gpu = host.gpus(i);
    const bool is_used = used.empty() || std::find(used.begin(), used.end(), i) != used.end();
    if (!is_used || gpu.memory_bytes() <= 0) continue;
    if (poorest == nullptr || gpu.free_bytes() < poorest->free_bytes()) poorest = &gpu;
  }
  return poorest;
}

std::string GpuMemoryText(const proto::Gpu& gpu) {
  constexpr int kMostNamed = 4;
  std::string text = absl::StrCat("GPU ", gpu.pci_address(), " has ", BytesText(gpu.free_bytes()),
                                  " of ", BytesText(gpu.memory_bytes()), " free");
  for (int i = 0; i < gpu.users_size() && i < kMostNamed; ++i) {
    const proto::GpuUser& user = gpu.users(i);
    absl::StrAppend(&text, i == 0 ? "; " : ", ", "process ", user.pid(),
                    user.name().empty() ? "" : absl::StrCat(" (", user.name(), ")"), " holds ",
                    user.bytes() > 0 ? BytesText(user.bytes()) : "some");
  }
  if (gpu.users_size() > kMostNamed) {
    absl::StrAppend(&text, " and ", gpu.users_size() - kMostNamed, " more");
  }
  return text;
}

}  // namespace weft
