#include "process/last_words.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <fstream>
#include <new>
#include <system_error>

namespace weft {
namespace {

constexpr int kNoMemoryExit = 3;
constexpr int kFailedExit = 1;

void AddLimit(const char* name, int resource, rlim_t unit, const char* unit_name,
              std::string* text) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return;
  if (limit.rlim_cur == RLIM_INFINITY) return;
  if (!text->empty()) *text += ", ";
  *text += std::string(name) + " is " + std::to_string(limit.rlim_cur / unit) + unit_name;
}

[[noreturn]] void SayAndEnd() {
  std::string why = "ended by an exception that nobody takes";
  int exit_code = kFailedExit;
  try {
    if (const std::exception_ptr exception = std::current_exception()) {
      std::rethrow_exception(exception);
    }
  } catch (const std::bad_alloc&) {
    why = "out of memory";
    exit_code = kNoMemoryExit;
  } catch (const std::system_error& error) {
    why = std::string("the system has refused a thread or another resource (") + error.what() + ")";
  } catch (const std::exception& error) {
    why += std::string(": ") + error.what();
  } catch (...) {  // of no kind that says more
  }
  const std::string limits = LimitsOnProcesses();
  std::fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, why.c_str(),
               limits.empty() ? "" : "; raise what limits it: ", limits.c_str());
  std::fflush(stderr);
  _exit(exit_code);
}

}  // namespace

std::string LimitsOnProcesses() {
  std::string text;
  AddLimit("ulimit -v", RLIMIT_AS, 1024, " KiB", &text);
  if (geteuid() != 0) AddLimit("ulimit -u", RLIMIT_NPROC, 1, "", &text);
  for (const char* const file : {"/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max"}) {
    long long most = 0;
    if (!(std::ifstream(file) >> most)) continue;
    text += (text.empty() ? "" : ", ") + std::string("pids.max is ") + std::to_string(most);
  }
  return text;
}

void HoldLastWords() {
  std::set_terminate(SayAndEnd);
}

}  // namespace weft
