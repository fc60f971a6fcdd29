// AgentChild is the agent of an allocation, started by this standing agent or by the one before it:
// a process that is watched and signalled through a pidfd and lives on when we do not. Belongs to
// one thread.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/machine/descriptor.h"
#include "launcher/standing/standing_agent.h"

namespace weft {

struct AgentChildOptions {
  std::string program;
  std::string coordinator;
  std::string bundle_file = {};
  std::string host;                           // as its processes carry it
  std::string name = {};                      // empty: it finds out by itself
  std::string domain = {};                    // that the host is in; empty: nothing is known
  std::vector<std::string> allowed_env = {};  // AgentOptions'
  AllocationOrder order;
  std::string words = {};  // file that takes its stdout and stderr, appended
};

// The command line of `weft agent` for an allocation. Pure.
std::vector<std::string> AgentArgv(const AgentChildOptions& options);

struct ChildEnd {
  bool is_known = false;  // the kernel tells it to its parent alone
  int exit_code = 0;
  int signal = 0;
};

class AgentChild {
 public:
  static absl::StatusOr<AgentChild> Start(const AgentChildOptions& options);
  // The agent of the run that another process has started on this host; empty if there is none.
  static std::optional<AgentChild> Find(const std::string& run_id, const std::string& host);

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }
  void Signal(int signal) const { SignalPidfd(pidfd_, signal); }
  // Once it has ended; never blocks.
  std::optional<ChildEnd> Ended() const;

 private:
  AgentChild(pid_t pid, Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  pid_t pid_;
  Descriptor pidfd_;
};

// Where an agent's words go: beside the logs of its run where they can be written, else `folder`.
std::string WordsFile(const AllocationOrder& order, const std::string& host,
                      const std::string& folder);
int64_t FileSize(const std::string& path);  // 0 if there is none
// The end of what stands in the file from byte `from` on: at most 4 KiB of valid UTF-8 without
// control characters.
std::string LastWords(const std::string& path, int64_t from);
inline constexpr size_t kMostLastWords = 4096;

}  // namespace weft
