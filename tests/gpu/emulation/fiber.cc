#include "tests/gpu/emulation/fiber.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

// Saves the callee's registers and the stack pointer, and goes on where `to` was saved. The
// library's swapcontext asks the kernel for the signal mask each time, which costs fifty times as
// much.
extern "C" void WeftSwitchStack(void** from, void* to);
asm(R"(
.text
.globl WeftSwitchStack
.type WeftSwitchStack, @function
WeftSwitchStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

// Null but in a build with the sanitizer.
extern "C" {
[[gnu::weak]] void __sanitizer_start_switch_fiber(void** kept, const void* bottom, size_t bytes);
[[gnu::weak]] void __sanitizer_finish_switch_fiber(void* kept, const void** bottom, size_t* bytes);
[[gnu::weak]] void* __tsan_get_current_fiber();
[[gnu::weak]] void* __tsan_create_fiber(unsigned flags);
[[gnu::weak]] void __tsan_destroy_fiber(void* fiber);
[[gnu::weak]] void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}

namespace weft::emulation {
namespace {

constexpr size_t kStackBytes = 256 << 10;

thread_local Fiber* starting = nullptr;

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
  // The stack is as WeftSwitchStack leaves it: six registers, then where to go; aligned as after a
  // call.
  constexpr size_t kWords = 8;
  void** const pointer = reinterpret_cast<void**>(memory_ + kStackBytes) - kWords;
  std::fill_n(pointer, kWords, nullptr);
  pointer[6] = reinterpret_cast<void*>(&Entry);
  stack_pointer_ = pointer;
  if (__tsan_create_fiber != nullptr) identity_ = __tsan_create_fiber(0);
}

Fiber::~Fiber() {
  if (__tsan_destroy_fiber != nullptr) __tsan_destroy_fiber(identity_);
  munmap(memory_, kStackBytes);
}

void Fiber::Resume() {
  starting = this;
  void* kept = nullptr;
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&kept, memory_, kStackBytes);
  }
  if (__tsan_switch_to_fiber != nullptr) {
    caller_identity_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(identity_, 0);
  }
  WeftSwitchStack(&caller_pointer_, stack_pointer_);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
  }
}

void Fiber::Pause() {
  if (__sanitizer_start_switch_fiber != nullptr) {
    __sanitizer_start_switch_fiber(&kept_, caller_stack_.bottom, caller_stack_.bytes);
  }
  if (__tsan_switch_to_fiber != nullptr) __tsan_switch_to_fiber(caller_identity_, 0);
  WeftSwitchStack(&stack_pointer_, caller_pointer_);
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(kept_, &caller_stack_.bottom, &caller_stack_.bytes);
  }
}

void Fiber::Entry() {
  Fiber& self = *starting;
  if (__sanitizer_finish_switch_fiber != nullptr) {
    __sanitizer_finish_switch_fiber(nullptr, &self.caller_stack_.bottom, &self.caller_stack_.bytes);
  }
  self.run_();
  Die("a fiber ran on after its end");
}

}  // namespace weft::emulation
