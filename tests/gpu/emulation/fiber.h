// Fiber: code on a stack of its own, that pauses and goes on where it paused. The host thread that
// resumes it waits meanwhile. The address and the thread sanitizer are told of each switch, where
// tests are built with one. Used by one host thread.
#pragma once
#include <functional>

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
  static void Entry();

  struct Stack {
    const void* bottom = nullptr;
    size_t bytes = 0;
  };

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

}  // namespace weft::emulation
