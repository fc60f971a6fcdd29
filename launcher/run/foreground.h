// A run in the foreground: a private weftd here and an agent on each host, from submission to the
// job's end. It decides nothing: weftd decides, agents start and end ranks, and what becomes of it
// is watched and said. Everything it starts is gone when it returns: processes, socket, temporary
// files.
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/agents.h"
#include "launcher/hosts/host_list.h"
#include "launcher/run/going_on.h"
#include "launcher/run/run_folder.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

enum class RunEnd {
  kCompleted,
  kSuspended,  // stopped on request, saved
  kFailed,
  kCancelled,        // stopped at once
  kCoordinatorLost,  // weftd died: the same command resumes
};

struct RunOutcome {
  RunEnd end = RunEnd::kFailed;
  std::string reason;
  int64_t saved_step = 0;
  bool lost_its_hosts = false;  // of kSuspended: nobody has asked for it, the hosts leave
};

// A person asks for one of these levels, from any thread. The level only rises.
enum class StopWish { kNone = 0, kSave = 1, kNow = 2 };

struct ForegroundOptions {
  RunPaths paths;
  JobSpec job;    // as written: what is `auto` may be planned again
  Layout layout;  // the plan's, for job.cluster
  Continuation continuation;
  std::vector<std::string> data;  // fingerprints, for resolved.yaml
  std::string socket;
  std::vector<ListedHost> hosts;           // none: this one alone
  AgentStarter starter;                    // of their agents, where they are not this one
  std::optional<NetworkDoor> door = {};    // where those come by themselves, in its place
  bool slots_as_offered = false;           // JobFile's
  std::map<std::string, std::string> env;  // for agents and what they start
  const std::atomic<StopWish>* stop = nullptr;
  std::function<void(const v1::Event&)> on_event;  // from one thread, never together with say
  std::function<void(const std::string&)> say;     // a line for people
  // A host did not come up; says whether the others go on. Not given: if enough others are named.
  std::function<bool(const std::string& host, const absl::Status& why)> host_failed = {};
  // A host was lost or left out, and why; OK: one that was lost is heard again.
  std::function<void(const std::string& host, const absl::Status& state)> host_changed = {};
};

// Unavailable or Internal if weftd or the agent cannot be started or refuse the job; otherwise how
// it ended.
absl::StatusOr<RunOutcome> RunInForeground(ForegroundOptions options);

}  // namespace weft
