#include "process/signals.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

void Watch(int signal_fd, int stop_fd, const std::function<void(int)>& on_signal) {
  for (;;) {
    pollfd fds[2] = {{signal_fd, POLLIN, 0}, {stop_fd, POLLIN, 0}};
    if (poll(fds, 2, -1) < 0) continue;  // EINTR: the only failure that valid descriptors have
    if (fds[1].revents != 0) return;
    signalfd_siginfo info;
    if (read(signal_fd, &info, sizeof(info)) != static_cast<ssize_t>(sizeof(info))) continue;
    on_signal(static_cast<int>(info.ssi_signo));
  }
}

}  // namespace

SignalWatcher::SignalWatcher(absl::Span<const int> signals,
                             std::function<void(int signal)> on_signal) {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : signals) sigaddset(&set, signal);
  CHECK(pthread_sigmask(SIG_BLOCK, &set, nullptr) == 0);
  signal_fd_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  stop_fd_ = eventfd(0, EFD_CLOEXEC);
  CHECK(signal_fd_ >= 0 && stop_fd_ >= 0);
  thread_ =
      std::thread([signal_fd = signal_fd_, stop_fd = stop_fd_, on_signal = std::move(on_signal)] {
        Watch(signal_fd, stop_fd, on_signal);
      });
}

SignalWatcher::~SignalWatcher() {
  const uint64_t one = 1;
  CHECK(write(stop_fd_, &one, sizeof(one)) == static_cast<ssize_t>(sizeof(one)));
  thread_.join();
  close(signal_fd_);
  close(stop_fd_);
}

void HoldFileSizeSignal() {
  struct sigaction ignored = {};
  ignored.sa_handler = SIG_IGN;
  sigaction(SIGXFSZ, &ignored, nullptr);
}

void PrepareChild() {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) sigaction(signal, &standard, nullptr);
  HoldFileSizeSignal();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

absl::Status DieWithParent(int signal, pid_t parent) {
  if (prctl(PR_SET_PDEATHSIG, signal) != 0) {
    return absl::InternalError(absl::StrCat("PR_SET_PDEATHSIG ", signal, " is refused"));
  }
  // The parent may have died before the call; then nothing would ever be sent.
  if (getppid() != parent) {
    return absl::AbortedError(absl::StrCat("parent process ", parent, " is gone"));
  }
  return absl::OkStatus();
}

}  // namespace weft
