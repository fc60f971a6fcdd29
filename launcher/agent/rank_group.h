// RankGroup is one generation's processes on this host: the ranks as children of the agent, or,
// where MPI joins them, mpirun or its daemon (orted) and under it a shim per rank. One thread, the
// one that lives as long as the agent: the kernel ends children with the thread that forked them.
//
// The agent is a subreaper, so whatever these processes leave behind becomes its child: nothing is
// left exactly when it has no child any more.
#pragma once
#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/agent/host_agent.h"
#include "launcher/agent/shim_door.h"
#include "launcher/machine/start.h"
#include "process/folder_entry.h"

namespace weft {

class RankGroup {
 public:
  // `logs`: the folder that takes what each process writes. `door`: where shims report.
  RankGroup(GroupOptions options, GroupKind kind, std::string logs, const ShimDoor& door);

  int64_t generation() const { return options_.generation; }
  std::vector<int> ranks() const { return OwnRanks(options_); }  // of this host

  // Makes the folders and starts what there is to start: for a guest nothing yet. What was started
  // before a failure is there to be ended.
  absl::Status Start();
  // Starts mpirun's daemon in a guest's group, as mpirun wants it (mpi_daemon.h).
  absl::Status StartDaemon(const std::vector<std::string>& args,
                           const std::vector<std::string>& first_addresses);
  // The fact in a shim's wish for a daemon; none unless it is a child of this group's mpirun, of
  // its generation, and names one of its hosts.
  std::optional<HostFact> WishOf(const ShimMessage& message) const;
  // The fact in the end of this child of the agent; none if it is one that another one has left.
  std::optional<HostFact> Ended(pid_t child, int wait_status);
  // To the ranks themselves, not to what started them, which would kill them.
  void Term();
  // To everything that is known of the generation. To be repeated until nothing is left.
  void Kill();
  void RemoveFiles() const;

 private:
  absl::Status StartRanks();
  absl::Status StartMpirun();
  const ProcessUser* user() const { return options_.user ? &*options_.user : nullptr; }
  OpenedEntry MakeLogs() const;
  std::string TailOf(const std::string& log) const;
  std::string LogOf(int rank) const;
  std::string StarterName() const;
  std::string StarterLog() const;

  const GroupOptions options_;
  const GroupKind kind_;
  const std::string logs_;
  const ShimDoor& door_;
  pid_t starter_ = -1;          // mpirun or its daemon
  std::map<pid_t, int> ranks_;  // children of the agent that have not ended
};

}  // namespace weft
