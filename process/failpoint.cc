#include "process/failpoint.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <cstring>

namespace weft {
namespace {

// The variable asks for this; the text stays in its own memory.
struct Asked {
  const char* name = nullptr;  // null: nothing
  size_t name_length = 0;
  long count = 0;
  const char* token = nullptr;
};

Asked Read() {
  const char* const text = getenv(kFailpointVariable);
  const char* const colon = text == nullptr ? nullptr : std::strchr(text, ':');
  if (colon == nullptr) return {};
  char* end = nullptr;
  const long count = std::strtol(colon + 1, &end, 10);
  if (count < 1 || *end != ':') return {};
  return {text, static_cast<size_t>(colon - text), count, end + 1};
}

}  // namespace

void Failpoint(const char* name) {
  static const Asked asked = Read();
  if (asked.name == nullptr) return;
  if (std::strlen(name) != asked.name_length) return;
  if (std::memcmp(name, asked.name, asked.name_length) != 0) return;
  static std::atomic<long> passed{0};
  if (++passed == asked.count && unlink(asked.token) == 0) kill(getpid(), SIGKILL);
}

}  // namespace weft
