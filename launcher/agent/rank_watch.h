// RankWatch is what a host's agent knows of its ranks without asking them: their progress pages,
// and their processes as /proc shows them. It remembers when each of them has last moved. One
// thread.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/machine/process_user.h"
#include "process/progress_page.h"
#include "proto/agent.pb.h"

namespace weft {

// A process as /proc/PID shows it.
struct ProcessState {
  char state = '-';  // '-': there is none
  int64_t cpu_ms = 0;
  int64_t io_bytes = 0;   // read and written, files above all
  std::string sleeps_in;  // the kernel's function
};
ProcessState ProcessStateOf(int64_t pid);

// All of a file under /proc; empty if it cannot be read.
std::string ProcText(const std::string& path);

class RankWatch {
 public:
  // Makes the pages of the generation's ranks of this host in `folder`, which it makes too.
  // `user`: as whom they run, where that is not the agent's; a page says which process a rank is,
  // and is looked at with that user's rights alone.
  static absl::StatusOr<RankWatch> Create(const std::string& folder, const std::string& run_id,
                                          const std::string& host, const std::vector<int>& ranks,
                                          std::optional<ProcessUser> user = std::nullopt);

  // Looks at all of them.
  void Look(int64_t now_ms);
  // The same, unless that was a moment ago. To be called every second or so, or a stillness seems
  // shorter than it is.
  void Glance(int64_t now_ms);
  // Says what they are at, as of the last look.
  std::vector<proto::RankSeen> Seen(int64_t now_ms) const;
  // Their processes that are there, by rank.
  std::map<int, int64_t> Processes() const;

 private:
  struct Rank {
    PageReader reader;
    PageView page;
    int64_t pid = 0;
    ProcessState process;
    int64_t changed_ms = 0;  // of the page
    int64_t moved_ms = 0;    // of the page, or in /proc
    int64_t polled_ms = 0;
    int64_t moved_cpu_ms = 0, moved_io_bytes = 0;  // as of moved_ms
  };

  RankWatch(std::string run_id, std::string host, std::optional<ProcessUser> user)
      : run_id_(std::move(run_id)), host_(std::move(host)), user_(std::move(user)) {}
  const ProcessUser* user() const { return user_ ? &*user_ : nullptr; }
  void LookAt(Rank& rank, int64_t now_ms) const;
  void FindProcesses();

  std::string run_id_;
  std::string host_;
  std::optional<ProcessUser> user_;
  std::map<int, Rank> ranks_;
  int64_t looked_ms_ = 0;
};

}  // namespace weft
