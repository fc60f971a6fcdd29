// The emulated device's memory: an anonymous file each, so that another process can map it as CUDA
// IPC lets it; nothing is left of it when its process is killed. A page behind the memory counts
// those that have it mapped: freeing it before they are done, which CUDA leaves undefined, ends the
// process. Between the two lies memory that nobody may touch, as the address sanitizer sees where
// the tests are built with it. Freeing waits for the memory's device, as CUDA does; what would
// never end does not here either, but says so and ends the process.
#include <cuda_runtime.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>

// The address sanitizer's: null elsewhere.
extern "C" {
[[gnu::weak]] void __asan_poison_memory_region(const volatile void* memory, size_t bytes);
[[gnu::weak]] void __asan_unpoison_memory_region(const volatile void* memory, size_t bytes);
}

namespace {

constexpr size_t kDeviceBytes = size_t{4} << 30;
constexpr size_t kGuardBytes = size_t{64} << 10;

struct Block {
  int fd = -1;
  size_t bytes = 0;
  bool is_own = true;  // of this process
  int device = weft::emulation::device;

  size_t counter_at() const { return (bytes + 63) / 64 * 64 + kGuardBytes; }
  size_t file_bytes() const { return counter_at() + sizeof(std::atomic<int>); }
};

struct Handle {
  pid_t pid;
  Block block;
};
static_assert(sizeof(Handle) <= sizeof(cudaIpcMemHandle_t));

class Blocks {
 public:
  cudaError_t Map(Block block, void** data) {
    void* const mapped =
        mmap(nullptr, block.file_bytes(), PROT_READ | PROT_WRITE, MAP_SHARED, block.fd, 0);
    if (mapped == MAP_FAILED) return cudaErrorMemoryAllocation;
    if (!block.is_own) ++CounterOf(mapped, block);
    if (__asan_poison_memory_region != nullptr) {
      __asan_poison_memory_region(static_cast<char*>(mapped) + block.bytes,
                                  block.counter_at() - block.bytes);
    }
    *data = mapped;
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[mapped] = block;
    return cudaSuccess;
  }
  cudaError_t Unmap(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) return data == nullptr ? cudaSuccess : cudaErrorInvalidValue;
    const Block& block = found->second;
    if (!block.is_own) {
      --CounterOf(data, block);
    } else if (CounterOf(data, block) > 0) {
      std::fprintf(stderr, "emulated device: memory is freed that another process has mapped\n");
      std::abort();
    }
    if (__asan_unpoison_memory_region != nullptr) {
      __asan_unpoison_memory_region(data, block.file_bytes());
    }
    munmap(data, block.file_bytes());
    close(block.fd);
    blocks_.erase(found);
    return cudaSuccess;
  }
  // Counts this process's own memory; what others have mapped to it counts with them.
  size_t Bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_t sum = 0;
    for (const auto& [data, block] : blocks_) sum += block.is_own ? block.bytes : 0;
    return sum;
  }
  Block Find(void* data) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(data);
    return found == blocks_.end() ? Block() : found->second;
  }

 private:
  static std::atomic<int>& CounterOf(void* data, const Block& block) {
    return *reinterpret_cast<std::atomic<int>*>(static_cast<char*>(data) + block.counter_at());
  }

  std::mutex mutex_;  // guards blocks_
  std::map<void*, Block> blocks_;
};

class Streams {
 public:
  void Add(const cudaStream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.insert(stream);
  }
  void Remove(const cudaStream* stream) {
    const std::lock_guard<std::mutex> lock(mutex_);
    streams_.erase(stream);
  }
  bool Hold(int device) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(streams_.begin(), streams_.end(), [device](const cudaStream* stream) {
      return stream->device == device && stream->holds > 0;
    });
  }

 private:
  std::mutex mutex_;  // guards streams_
  std::set<const cudaStream*> streams_;
};

Streams& AllStreams() {
  static auto* const streams = new Streams;
  return *streams;
}

void WaitForDevice(int device) {
  weft::emulation::RunAll(device);
  constexpr int kMostNaps = 30'000;
  for (int i = 0; AllStreams().Hold(device); ++i) {
    weft::emulation::Nap();
    if (i < kMostNaps) continue;
    std::fprintf(stderr, "emulated device: freeing waits for a stream that is held for ever\n");
    std::abort();
  }
}

Blocks& AllBlocks() {
  static auto* const blocks = new Blocks;
  return *blocks;
}

bool Is(const char* variable, const char* value) {
  const char* const set = std::getenv(variable);
  return set != nullptr && std::strcmp(set, value) == 0;
}

}  // namespace

cudaStream::cudaStream() : lazy(weft::emulation::AddStream(this)) {
  AllStreams().Add(this);
}
cudaStream::~cudaStream() {
  weft::emulation::RemoveStream(this);
  AllStreams().Remove(this);
}

cudaError_t cudaMalloc(void** data, size_t bytes) {
  *data = nullptr;
  if (weft::emulation::VoidsCapture(weft::emulation::capturing_stream)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (bytes > kDeviceBytes) return cudaErrorMemoryAllocation;
  const int fd = memfd_create("weft-emulated-device", MFD_CLOEXEC);
  const Block block = {fd, bytes};
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(block.file_bytes())) != 0) {
    return cudaErrorMemoryAllocation;
  }
  return AllBlocks().Map(block, data);
}

cudaError_t cudaFree(void* data) {
  if (weft::emulation::VoidsCapture(weft::emulation::capturing_stream)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (data != nullptr) WaitForDevice(AllBlocks().Find(data).device);
  return AllBlocks().Unmap(data);
}

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  *total = kDeviceBytes;
  *free = kDeviceBytes - std::min(kDeviceBytes, AllBlocks().Bytes());
  return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* handle, void* data) {
  if (Is("WEFT_EMULATED_IPC", "none")) return cudaErrorNotSupported;
  const Handle own = {getpid(), AllBlocks().Find(data)};
  std::memcpy(handle->reserved, &own, sizeof(own));
  return cudaSuccess;
}

cudaError_t cudaIpcOpenMemHandle(void** data, cudaIpcMemHandle_t handle, unsigned /*flags*/) {
  Handle theirs;
  std::memcpy(&theirs, handle.reserved, sizeof(theirs));
  const std::string path =
      "/proc/" + std::to_string(theirs.pid) + "/fd/" + std::to_string(theirs.block.fd);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return cudaErrorInvalidValue;
  return AllBlocks().Map({fd, theirs.block.bytes, false}, data);
}

cudaError_t cudaIpcCloseMemHandle(void* data) {
  return AllBlocks().Unmap(data);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int /*device*/) {
  const int capability = weft::emulation::compute_capability;
  *properties = {"emulated", size_t{4} << 30, capability / 10, capability % 10, 132};
  return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int size, int /*device*/) {
  const bool own = Is("WEFT_EMULATED_DEVICES", "own");
  std::snprintf(id, static_cast<size_t>(size), "%08x:01:00.0", own ? getpid() : 0);
  return cudaSuccess;
}
