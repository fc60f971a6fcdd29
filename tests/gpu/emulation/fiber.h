// Fiber: code on a stack of its own, that pauses and goes on where it paused. The host thread that
// resumes it waits meanwhile. The address and the thread sanitizer are told of each switch, where
// tests are built with one. Used by one host thread.
#pragma once
#include <cstddef>
#include <functional>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

namespace weft::emulation {

class Fiber {
 public:
  // `run` begins at the first Resume() and does not return.
  explicit Fiber(std::function<void()> run);
  // Its stack goes with what lies on it, of which nothing is destroyed. REQUIRES: it is paused.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  void Resume();  // until it pauses
  void Pause();   // from within

 private:
  static constexpr size_t kStackBytes = 256 << 10;

  struct Stack {
    const void* bottom = nullptr;
    size_t bytes = 0;
  };

  static void Entry();
  // Saves the stack pointer in *from, and goes on where `to` was saved.
  static void Switch(void** from, void* to);

  static inline thread_local Fiber* starting = nullptr;

  const std::function<void()> run_;
  char* memory_ = nullptr;
  void* stack_pointer_ = nullptr;   // while it is paused
  void* caller_pointer_ = nullptr;  // while it runs
  Stack caller_stack_;
  // The sanitizers keep these.
  void* kept_ = nullptr;
  void* identity_ = nullptr;
  void* caller_identity_ = nullptr;
};

// The library's swapcontext asks the kernel for the signal mask each time, which costs fifty times
// as much. A part of whatever function it stands in, and without a return of its own: the processor
// foresees where a function returns to by counting calls, and a switch between two of them would
// make each return a surprise. Below the stack pointer lies what that function may use without
// asking (the ABI's red zone, 128 bytes).
[[gnu::always_inline]] inline void Fiber::Switch(void** from, void* to) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n\t"
      "pushq %%rbp\n\t"
      "pushq %%rbx\n\t"
      "leaq 1f(%%rip), %%rax\n\t"
      "pushq %%rax\n\t"
      "movq %%rsp, (%%rdi)\n\t"
      "movq %%rsi, %%rsp\n\t"
      "popq %%rax\n\t"
      "jmp *%%rax\n"
      "1:\n\t"
      "popq %%rbx\n\t"
      "popq %%rbp\n\t"
      "leaq 128(%%rsp), %%rsp"
      : "+D"(from), "+S"(to)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "xmm0", "xmm1",
        "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11", "xmm12",
        "xmm13", "xmm14", "xmm15", "memory", "cc");
}

[[gnu::always_inline]] inline void Fiber::Resume() {
  starting = this;
#if defined(__SANITIZE_ADDRESS__)
  void* kept = nullptr;
  __sanitizer_start_switch_fiber(&kept, memory_, kStackBytes);
#endif
#if defined(__SANITIZE_THREAD__)
  caller_identity_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(identity_, 0);
#endif
  Switch(&caller_pointer_, stack_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(kept, nullptr, nullptr);
#endif
}

[[gnu::always_inline]] inline void Fiber::Pause() {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&kept_, caller_stack_.bottom, caller_stack_.bytes);
#endif
#if defined(__SANITIZE_THREAD__)
  __tsan_switch_to_fiber(caller_identity_, 0);
#endif
  Switch(&stack_pointer_, caller_pointer_);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(kept_, &caller_stack_.bottom, &caller_stack_.bytes);
#endif
}

}  // namespace weft::emulation
