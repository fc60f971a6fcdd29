#include "launcher/agent/product_rate.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "launcher/machine/child_process.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/log_tail.h"
#include "launcher/machine/start.h"
#include "plan/errors.h"
#include "process/clock.h"

namespace weft {
namespace {

constexpr char kSeconds[] = "0.05";
constexpr char kKey[] = "\"product_flops_per_s\": ";
constexpr size_t kMostWords = 200;

// Reads what comes until the other end is closed. False: it is still open at that time.
bool ReadUntil(const Descriptor& pipe, int64_t end_ms, std::string* text) {
  for (;;) {
    const int64_t left_ms = std::max<int64_t>(0, end_ms - BootTimeMs());
    pollfd readable{pipe.get(), POLLIN, 0};
    if (poll(&readable, 1, static_cast<int>(left_ms)) == 0) return false;
    char bytes[4096];
    const ssize_t got = read(pipe.get(), bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return true;
    text->append(bytes, static_cast<size_t>(got));
  }
}

}  // namespace

absl::StatusOr<double> ProductRate(BackendKind backend, int threads, int64_t limit_ms) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "cannot make a pipe");
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  const int64_t end_ms = BootTimeMs() + limit_ms;
  ASSIGN_OR_RETURN(ChildProcess child,
                   ChildProcess::Start({.argv = {Beside("weft-worker"), "--probe=product",
                                                 absl::StrCat("--backend=", WordOf(backend)),
                                                 absl::StrCat("--threads=", threads),
                                                 absl::StrCat("--seconds=", kSeconds)},
                                        .env = {},
                                        .stdout_fd = in.get(),
                                        .stderr_fd = in.get(),
                                        .death_signal = SIGKILL}));
  in.Close();
  const Descriptor process = OpenPidfd(child.pid());
  child.Release();
  std::string text;
  const bool ended = ReadUntil(out, end_ms, &text);
  SignalPidfd(process, SIGKILL);
  if (!ended) {
    return absl::UnavailableError(absl::StrCat("it was not measured within ", limit_ms, " ms"));
  }
  const size_t key = text.find(kKey);
  double rate = 0;
  if (key != std::string::npos) {
    const size_t begin = key + sizeof(kKey) - 1;
    const size_t end = text.find_first_of(",}", begin);
    if (absl::SimpleAtod(text.substr(begin, end - begin), &rate) && rate > 0) return rate;
  }
  return absl::UnavailableError(absl::StrCat("weft-worker: ", LastReasons(text, 1, kMostWords)));
}

}  // namespace weft
