#include "tests/gpu/emulation/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace weft::emulation {
namespace {

// Stacks begin at another place each. Where all of them lie at multiples of one power of two, a
// warp's frames share a few sets of the caches, and each switch waits for memory.
constexpr size_t kPlaceBytes = 576;
constexpr size_t kPlaces = 64;

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "emulated device: %s\n", what);
  std::abort();
}

}  // namespace

Fiber::Fiber(std::function<void()> run) : run_(std::move(run)) {
  void* const memory = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) Die("no memory for stacks");
  memory_ = static_cast<char*>(memory);
  // The stack is as Switch leaves it: where to go, and above it what is aligned as after a call.
  static std::atomic<size_t> made = 0;
  char* const end = memory_ + kStackBytes - made++ % kPlaces * kPlaceBytes;
  constexpr size_t kWords = 2;
  void** const pointer = reinterpret_cast<void**>(end) - kWords;
  pointer[0] = reinterpret_cast<void*>(&Entry);
  pointer[1] = nullptr;
  stack_pointer_ = pointer;
#if defined(__SANITIZE_THREAD__)
  identity_ = __tsan_create_fiber(0);
#endif
}

Fiber::~Fiber() {
#if defined(__SANITIZE_THREAD__)
  __tsan_destroy_fiber(identity_);
#endif
  munmap(memory_, kStackBytes);
}

void Fiber::Entry() {
  Fiber& self = *starting;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(nullptr, &self.caller_stack_.bottom, &self.caller_stack_.bytes);
#endif
  self.run_();
  Die("a fiber ran on after its end");
}

}  // namespace weft::emulation
