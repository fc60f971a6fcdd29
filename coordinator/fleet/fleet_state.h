// The state of a fleet and the facts that it is made of, as values: what happens to them is in
// fleet.h. Hosts are what standing agents offer; jobs are what people submit. How a placed job
// fares is its own Driver's matter: the fleet knows that it is placed, and how it ended.
#pragma once
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "plan/host_failures.h"

namespace weft {

// A host fails when the agent of an allocation there ends by itself, or its offer's lease does
// while a job has part of it.
inline constexpr int64_t kFailuresWithinMs = kHostFailuresWithinS * 1000;
inline constexpr int64_t kLeftOutMs = kHostLeftOutS * 1000;
// A placed job waits so long for hosts of its own that are gone.
inline constexpr int64_t kAwaitGoneMs = 60 * 1000;
// Jobs that are over are forgotten beyond these, oldest first.
inline constexpr int kMaxOverJobs = 1000;
inline constexpr int64_t kMaxOverAgeMs = int64_t{30} * 24 * 3600 * 1000;

struct FleetHost {
  std::string host;
  std::string owner;  // user name; its jobs run as this user
  int64_t owner_uid = -1;
  std::vector<std::string> allows = {};  // users beside the owner; "*": all
  int slots = 0;
  bool lacks_tokens = false;  // its standing agent is too old to start agents that are let in
  bool starts_as_submitter = false;  // its owner is root: ranks run as whoever has submitted them
  bool present = false;              // its standing agent's lease runs
  int64_t gone_ms = 0;               // Unix time at which it ended; 0: it is present
  bool leaves = false;  // its standing agent was told to end, and waits until jobs are saved
  bool drained = false;
  bool moves = false;  // and jobs there are asked away
  std::string drain_reason = {};
  std::vector<int64_t> failed_ms = {};  // Unix time of its newest failures, oldest first
  int64_t left_out_until_ms = 0;        // Unix time; 0: it is not left out
  friend bool operator==(const FleetHost&, const FleetHost&) = default;
};

// The part of a host that a job has.
struct FleetShare {
  std::string machine;
  std::vector<int> slots;  // ascending
  friend bool operator==(const FleetShare&, const FleetShare&) = default;
};

// A FleetRequest is what a job asks the fleet for.
struct FleetRequest {
  std::string owner;
  int64_t owner_uid = -1;
  int priority = 0;           // a higher one goes first
  bool brings_hosts = false;  // the submitter starts its agents: it takes none of the fleet's hosts
  int least_nodes = 1;
  int nodes = 1;
  int slots_per_node = 1;
  friend bool operator==(const FleetRequest&, const FleetRequest&) = default;
};

enum class FleetPhase { kQueued, kPlaced, kPaused, kOver };
// An AfterSave says what becomes of a placed job once its Driver has ended it with a checkpoint.
enum class AfterSave { kIsOver, kIsPaused, kIsQueued };
// A FleetStop says how somebody wants a placed job to end; it only rises.
enum class FleetStop { kNone, kSave, kNow };

struct FleetJob {
  FleetRequest request;
  FleetPhase phase = FleetPhase::kQueued;
  int64_t place = 0;  // in the queue, among those of its priority: lower goes first
  AfterSave after_save = AfterSave::kIsOver;
  // A resize waits for hosts: the job goes on as it is until they are there.
  bool resized = false;
  int placed_least_nodes = 0;  // the request's when it was placed; 0: it was never
  int placed_nodes = 0;        // the same
  FleetStop stop = FleetStop::kNone;
  int64_t stop_now_ms = 0;  // Unix time at which kSave becomes kNow; 0: it does not
  bool moves = false;       // its hosts are gone for too long: it goes on from its checkpoint
  int64_t allocation = 0;   // 0: it was never placed
  std::vector<FleetShare> shares = {};
  std::string end = {};  // "COMPLETED", "FAILED", "CANCELLED", "SUSPENDED" of one that is over
  std::string reason = {};
  int64_t ended_ms = 0;  // Unix time
  friend bool operator==(const FleetJob&, const FleetJob&) = default;
};

struct Fleet {
  std::map<std::string, FleetHost> hosts;      // by machine
  std::map<int64_t, FleetJob> jobs;            // by number: "job-17" is 17
  std::set<std::pair<int64_t, int64_t>> over;  // of those that are: time of the end, number
  std::set<int64_t> live;                      // the others
  int64_t newest_job = 0;
  int64_t newest_allocation = 0;
  int64_t newest_place = 0;
  int64_t revision = 0;  // how many facts have changed it
  friend bool operator==(const Fleet&, const Fleet&) = default;
};

// ---- facts ----
// A standing agent offers its host, or offers it anew with other words.
struct HostJoined {
  std::string machine;
  std::string host;
  std::string owner;
  int64_t owner_uid = -1;
  std::vector<std::string> allows = {};
  int slots = 0;
  bool lacks_tokens = false;
  bool starts_as_submitter = false;
  bool leaves = false;
};
// The lease of the offer has ended.
struct HostGone {
  std::string machine;
  int64_t unix_ms = 0;
};
// Something of an allocation ended there before its job did.
struct HostFailed {
  std::string machine;
  int64_t unix_ms = 0;
};
struct HostDrained {
  std::string machine;
  std::string reason;
  bool moves = false;  // jobs that run there are asked away
};
struct HostUndrained {
  std::string machine;
};
struct JobQueued {
  int64_t job = 0;  // Fleet.newest_job + 1
  FleetRequest request;
};
struct JobPlaced {
  int64_t job = 0;
  std::vector<FleetShare> shares = {};
};
// Its Driver has ended the job, and nothing of it is left.
struct JobEnded {
  int64_t job = 0;
  std::string end;
  std::string reason;
  int64_t unix_ms = 0;
};
// Somebody does not want the job any more: one that is not placed is over at once.
struct JobUnwanted {
  int64_t job = 0;
  bool now = false;           // without saving
  int64_t save_until_ms = 0;  // Unix time at which it is stopped at once; 0: never
  std::string reason;
  int64_t unix_ms = 0;
};
// Too many of a placed job's hosts are gone: it is to be queued again.
struct JobMoves {
  int64_t job = 0;
};
struct PauseAsked {
  int64_t job = 0;
};
// The job is paused, or somebody has stopped it with a checkpoint.
struct ResumeAsked {
  int64_t job = 0;
};
struct ResizeAsked {
  int64_t job = 0;
  int least_nodes = 0;
  int nodes = 0;
};

using FleetEvent =
    std::variant<HostJoined, HostGone, HostFailed, HostDrained, HostUndrained, JobQueued, JobPlaced,
                 JobEnded, JobUnwanted, JobMoves, PauseAsked, ResumeAsked, ResizeAsked>;

}  // namespace weft
