// HostChecker carries out what the coordinator wants to know of this host: a round of checks at a
// time, on threads of its own, since a file system may hang. Nobody waits for it: what there is to
// say is there to be taken. One thread calls it.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/process_user.h"
#include "proto/agent.pb.h"

namespace weft {

class HostChecker {
 public:
  struct Options {
    std::string machine;           // as Hello names it
    bool is_coordinators = false;  // the agent is on the coordinator's host
    int wake_fd = -1;              // an eventfd that is written when TakeReports has something
    std::vector<int> slots = {};   // UsedSlots
    std::optional<ProcessUser> user = {};  // as whom ranks run, where that is not the agent's
  };
  explicit HostChecker(Options options);
  ~HostChecker();  // waits for nothing
  HostChecker(const HostChecker&) = delete;
  HostChecker& operator=(const HostChecker&) = delete;

  // Begins another round, goes on with the one that is under way, or reads a checkpoint; false if
  // the order is about something else.
  bool Take(const proto::AgentOrder& order);

  // CheckOpened and HostChecked, without a sequence.
  std::vector<proto::AgentReport> TakeReports();

 private:
  struct Round;
  struct Shared;
  static std::vector<proto::CheckResult> CheckAsRanks(const Round& round);
  static void Run(const std::shared_ptr<Round>& round);
  static void OpenDoor(Round& round);
  static void MeetPeers(Round& round, proto::HostChecked* checked);

  const Options options_;
  const std::shared_ptr<Shared> shared_;
  std::shared_ptr<Round> round_;
};

}  // namespace weft
