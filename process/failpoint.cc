#include "process/failpoint.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string_view>

namespace weft {
namespace {

enum class Form { kNameCountToken, kNameMilliseconds };

struct Asked {
  std::string_view name;  // empty: nothing
  long number = 0;
  const char* token = "";  // a path
};

// Whoever misspells a place would take for granted that it was come to.
[[noreturn]] void Refuse(const char* variable, const char* text, Form form) {
  std::fprintf(stderr, "weft: %s=%s is no %s with a name of process/failpoint.h; unset it, or\n",
               variable, text, form == Form::kNameCountToken ? "NAME:COUNT:TOKEN" : "NAME:MS");
  std::fprintf(stderr, "name one of");
  for (const char* const name : kFailpoints) std::fprintf(stderr, " %s", name);
  std::fprintf(stderr, "\n");
  _exit(2);
}

Asked Read(const char* variable, Form form) {
  const char* const text = getenv(variable);
  if (text == nullptr || *text == 0) return {};
  const std::string_view all = text;
  const size_t colon = all.find(':');
  if (colon == all.npos) Refuse(variable, text, form);
  Asked asked{.name = all.substr(0, colon)};
  char* end = nullptr;
  asked.number = std::strtol(text + colon + 1, &end, 10);
  const bool has_token = *end == ':' && end[1] != 0;
  const bool ends_well = form == Form::kNameCountToken ? has_token : *end == 0;
  const bool is_known =
      std::find(kFailpoints.begin(), kFailpoints.end(), asked.name) != kFailpoints.end();
  if (!ends_well || !is_known || asked.number < 1) Refuse(variable, text, form);
  if (has_token) asked.token = end + 1;
  return asked;
}

void PauseIfAsked(std::string_view name) {
  static const Asked asked = Read(kPauseVariable, Form::kNameMilliseconds);
  if (asked.name != name) return;
  const timespec pause = {asked.number / 1000, asked.number % 1000 * 1'000'000};
  nanosleep(&pause, nullptr);
}

void DieIfAsked(std::string_view name) {
  static const Asked asked = Read(kFailpointVariable, Form::kNameCountToken);
  if (asked.name != name) return;
  static std::atomic<long> passed{0};
  if (++passed == asked.number && unlink(asked.token) == 0) kill(getpid(), SIGKILL);
}

}  // namespace

void Failpoint(const char* name) {
  PauseIfAsked(name);
  DieIfAsked(name);
}

}  // namespace weft
