#include "worker/backend/cpu/host/memory.h"

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace weft {
namespace {

constexpr int64_t kHugePage = 2 << 20;

int64_t RoundUp(int64_t bytes) {
  return (bytes + kHugePage - 1) / kHugePage * kHugePage;
}

// The number in a one-line file of the control group; "max" and a missing file: `otherwise`.
int64_t ReadLimit(const char* path, int64_t otherwise) {
  std::ifstream file(path);
  int64_t value = 0;
  return file >> value ? value : otherwise;
}

int64_t MemAvailable() {
  std::ifstream file("/proc/meminfo");
  std::string key;
  int64_t kilobytes = 0;
  while (file >> key >> kilobytes) {
    if (key == "MemAvailable:") return kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE);
}

}  // namespace

void* MapMemory(int64_t bytes) {
  if (bytes <= 0 || bytes > AvailableMemoryBytes()) return nullptr;
  const int64_t size = RoundUp(bytes);
  // One huge page more, of which the ends are given back, so that the rest is aligned.
  const auto mapped_size = static_cast<size_t>(size + kHugePage);
  void* const mapped =
      mmap(nullptr, mapped_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  char* const start = static_cast<char*>(mapped);
  const auto offset = static_cast<int64_t>(reinterpret_cast<uintptr_t>(start) % kHugePage);
  const int64_t skip = offset == 0 ? 0 : kHugePage - offset;
  char* const data = start + skip;
  if (skip > 0) munmap(start, static_cast<size_t>(skip));
  munmap(data + size, static_cast<size_t>(kHugePage - skip));
  madvise(data, static_cast<size_t>(size), MADV_HUGEPAGE);
  return data;
}

void UnmapMemory(void* data, int64_t bytes) {
  if (data != nullptr) munmap(data, static_cast<size_t>(RoundUp(bytes)));
}

int64_t MemoryLimitBytes() {
  const int64_t physical = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return std::min({physical, ReadLimit("/sys/fs/cgroup/memory.max", physical),
                   ReadLimit("/sys/fs/cgroup/memory/memory.limit_in_bytes", physical)});
}

int64_t AvailableMemoryBytes() {
  const int64_t used = ReadLimit("/sys/fs/cgroup/memory.current", 0);
  const int64_t limit = ReadLimit("/sys/fs/cgroup/memory.max", 0);
  const int64_t available = MemAvailable();
  return limit > 0 ? std::min(available, std::max<int64_t>(0, limit - used)) : available;
}

int ProcessorCount() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return 1;
  return std::max(1, CPU_COUNT(&mask));
}

}  // namespace weft
