#include "tests/parity/allocations.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>

// glibc's own, under names that nothing takes the place of. dlsym would not do: it allocates.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* block, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* block);
}

namespace {

std::atomic<int64_t> g_calls{0};
std::atomic<int64_t> g_live{0};
std::atomic<int64_t> g_peak{0};
std::atomic<int64_t> g_mapped{0};

int64_t SizeOf(void* block) {
  return static_cast<int64_t>(malloc_usable_size(block));
}

void* Took(void* block) {
  if (block == nullptr) return block;
  g_calls.fetch_add(1, std::memory_order_relaxed);
  const int64_t live = g_live.fetch_add(SizeOf(block)) + SizeOf(block);
  int64_t peak = g_peak.load();
  while (peak < live && !g_peak.compare_exchange_weak(peak, live)) {
  }
  return block;
}

void GaveBack(void* block) {
  if (block != nullptr) g_live.fetch_sub(SizeOf(block));
}

void* Mapped(void* block, int64_t bytes) {
  if (block == MAP_FAILED) return block;
  g_calls.fetch_add(1, std::memory_order_relaxed);
  g_mapped.fetch_add(bytes);
  return block;
}

void* SystemMap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): the kernel answers with a number
  return reinterpret_cast<void*>(syscall(SYS_mmap, address, bytes, protection, flags, fd, offset));
}

}  // namespace

extern "C" {

void WeftReadAllocations(WeftAllocations* counters) {
  const int64_t live = g_live.load();
  *counters = {g_calls.load(), live, g_peak.exchange(live), g_mapped.load()};
}

void* malloc(size_t bytes) {
  return Took(__libc_malloc(bytes));
}
void* calloc(size_t count, size_t bytes) {
  return Took(__libc_calloc(count, bytes));
}
void* realloc(void* block, size_t bytes) {
  const int64_t before = block == nullptr ? 0 : SizeOf(block);
  void* const moved = __libc_realloc(block, bytes);
  if (moved == nullptr && bytes > 0) return nullptr;  // the old block is as it was
  g_live.fetch_sub(before);
  return Took(moved);
}
void free(void* block) {
  GaveBack(block);
  __libc_free(block);
}
void* memalign(size_t alignment, size_t bytes) {
  return Took(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return memalign(alignment, bytes);
}
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  *block = memalign(alignment, bytes);
  return *block == nullptr ? ENOMEM : 0;
}
void* valloc(size_t bytes) {
  return memalign(static_cast<size_t>(getpagesize()), bytes);
}

void* mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return Mapped(SystemMap(address, bytes, protection, flags, fd, offset),
                static_cast<int64_t>(bytes));
}
void* mmap64(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  return mmap(address, bytes, protection, flags, fd, offset);
}
int munmap(void* address, size_t bytes) {
  const long status = syscall(SYS_munmap, address, bytes);
  if (status == 0) g_mapped.fetch_sub(static_cast<int64_t>(bytes));
  return static_cast<int>(status);
}
void* mremap(void* address, size_t bytes, size_t new_bytes, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  void* const wanted = (flags & MREMAP_FIXED) != 0 ? va_arg(arguments, void*) : nullptr;
  va_end(arguments);
  const long moved = syscall(SYS_mremap, address, bytes, new_bytes, flags, wanted);
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  return Mapped(reinterpret_cast<void*>(moved),
                static_cast<int64_t>(new_bytes) - static_cast<int64_t>(bytes));
}
}
