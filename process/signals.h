// Signals as plain calls on a thread: no code of ours runs in a signal handler. Also what a process
// does so that it never outlives its parent.
#pragma once
#include <sys/types.h>

#include <functional>
#include <thread>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace weft {

// Takes `signals` for itself as long as it lives. Make it before any other thread starts: it blocks
// the signals in its thread, and threads inherit that. `on_signal` is called on a thread of its
// own, one signal after the other. Children inherit the blocked set: see PrepareChild.
class SignalWatcher {
 public:
  SignalWatcher(absl::Span<const int> signals, std::function<void(int signal)> on_signal);
  ~SignalWatcher();
  SignalWatcher(const SignalWatcher&) = delete;
  SignalWatcher& operator=(const SignalWatcher&) = delete;

 private:
  int signal_fd_ = -1;
  int stop_fd_ = -1;
  std::thread thread_;
};

// Why a process is ended by SIGBUS, as far as its host can have done that.
inline constexpr char kNoRoomForMapping[] =
    "a file that it had mapped has no room: /dev/shm, /tmp or the file system of its files is full";

// A write beyond the limit on file sizes (ulimit -f) fails with EFBIG, like one to a full disk, and
// ends no process. Programs that are started inherit it. Async-signal-safe.
void HoldFileSizeSignal();

// Unblocks all signals between fork and exec and gives them their default actions back (but
// HoldFileSizeSignal's), so that a child does not inherit what SignalWatcher blocked.
// Async-signal-safe.
void PrepareChild();

// The kernel sends `signal` to this process when `parent` dies (PR_SET_PDEATHSIG). Aborted if it is
// dead already. Async-signal-safe when it succeeds: fit for use between fork and exec. The kernel
// means the thread of the parent that forked: fork from a thread that lives as long as the parent.
absl::Status DieWithParent(int signal, pid_t parent);

}  // namespace weft
