// A process that this one starts and watches, in a process group of its own, so that a Ctrl-C at
// the terminal reaches it only through us. It gets SIGTERM from the kernel when we die.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/machine/process_user.h"
#include "process/rank_place.h"

namespace weft {

// The program that `name` means: itself if it holds a slash, else the first of that name in PATH;
// empty if there is none.
std::string FindInPath(const std::string& name);

struct ChildOptions {
  std::vector<std::string> argv;           // argv[0]: found in PATH unless it holds a slash
  std::map<std::string, std::string> env;  // added to ours
  // File that takes stdout and stderr, appended (LogEntryOf); stdin is empty.
  std::string output = "/dev/null";
  // Instead, if not -1: descriptors of ours that become the child's stdin, stdout and stderr.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  int death_signal = 15;  // SIGTERM: what the kernel sends it when we die
  RankPlace place = {};   // where it runs, as far as the kernel lets it
  // The user who runs it and opens `output`, with little of our environment. REQUIRES: we are root.
  std::optional<ProcessUser> user = {};
};

class ChildProcess {
 public:
  // Call it from a thread that lives as long as the child should (the kernel watches that thread).
  // NotFound if argv[0] cannot be executed.
  static absl::StatusOr<ChildProcess> Start(const ChildOptions& options);
  ChildProcess(ChildProcess&& other) noexcept : pid_(other.pid_), status_(other.status_) {
    other.pid_ = -1;
  }
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();  // KILLs the group if it still runs

  pid_t pid() const { return pid_; }
  // Leaves the child to the caller, who waits for it.
  pid_t Release() { return std::exchange(pid_, -1); }
  // The wait status once it has ended (WIFEXITED and so on), never blocks.
  std::optional<int> Ended();
  // TERM to its group, without waiting for what comes of it.
  void AskToEnd() const;
  // TERM to its group; KILL to what is left of that after `patience_ms`; returns when it has ended.
  int Stop(int patience_ms);

 private:
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  bool HasEnded() const;
  void Reap();
  pid_t pid_;
  std::optional<int> status_;
};

}  // namespace weft
