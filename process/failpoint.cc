#include "process/failpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace weft {
namespace {

// A variable's text begins with NAME:NUMBER, and stays in its own memory.
struct Asked {
  const char* name = nullptr;  // null: nothing
  size_t name_length = 0;
  long number = 0;
  const char* rest = nullptr;

  bool Names(const char* place) const {
    return name != nullptr && std::strlen(place) == name_length &&
           std::memcmp(place, name, name_length) == 0;
  }
};

Asked Read(const char* variable) {
  const char* const text = getenv(variable);
  const char* const colon = text == nullptr ? nullptr : std::strchr(text, ':');
  if (colon == nullptr) return {};
  char* end = nullptr;
  const long number = std::strtol(colon + 1, &end, 10);
  if (number < 1) return {};
  return {text, static_cast<size_t>(colon - text), number, end};
}

void PauseIfAsked(const char* name) {
  static const Asked asked = Read(kPauseVariable);
  if (!asked.Names(name)) return;
  const timespec pause = {asked.number / 1000, asked.number % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

void DieIfAsked(const char* name) {
  static const Asked asked = Read(kFailpointVariable);
  if (!asked.Names(name) || *asked.rest != ':') return;
  static std::atomic<long> passed{0};
  if (++passed == asked.number && unlink(asked.rest + 1) == 0) kill(getpid(), SIGKILL);
}

}  // namespace

void Failpoint(const char* name) {
  PauseIfAsked(name);
  DieIfAsked(name);
}

}  // namespace weft
