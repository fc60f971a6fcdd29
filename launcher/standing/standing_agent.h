// StandingAgent is the mind of a host that is offered to the fleet: facts in (Apply), duties out
// (Decide), as launcher/agent/host_agent.h has it for one job's agent. Pure: no clock, no process,
// no wire. It knows which allocations weftd has given here, what runs for each, and which ends
// weftd has not acknowledged yet; what a job does it does not know.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"

namespace weft {

// weftd says this of an agent that is to run here (proto/fleet.proto, StartAgent).
struct AllocationOrder {
  std::string job_id = {};
  int64_t allocation = 0;
  std::string run_id = {};
  std::string run_folder = {};
  int host_slots = 0;
  std::vector<int> slots = {};  // none: all
  std::string token = {};       // process/agent_token.h; empty: of one that was found here
  bool is_of_another = false;   // the submitter is not the user that runs the job
  std::string ranks_user = {};  // the submitter, as whom its ranks run; empty: as this user
  int64_t ranks_uid = 0;        // that user's id for weftd
  friend bool operator==(const AllocationOrder&, const AllocationOrder&) = default;
};

struct AllocationEnd {
  int exit_code = 0;
  int signal = 0;
  std::string last_words = {};
  friend bool operator==(const AllocationEnd&, const AllocationEnd&) = default;
};

enum class AllocationPhase {
  kWaiting,   // to be started, once no older allocation of its run is left
  kRunning,   // its agent may be there
  kTelling,   // its agent is to be told to end
  kStopping,  // it was told
  kKilling,   // KILL until it has ended
  kSweeping,  // it has ended; KILL to what it has left, until there is nothing
  kEnded,     // weftd has not acknowledged that yet
};

struct Allocation {
  AllocationOrder order;
  AllocationPhase phase = AllocationPhase::kWaiting;
  int64_t told_ms = 0;      // when it was told to end
  int64_t patience_ms = 0;  // that it has from then on
  AllocationEnd end = {};
  int64_t sequence = 0;  // of the report of its end, once it has ended
};

// The end of an agent, for weftd.
struct EndReport {
  int64_t sequence = 0;  // counts from 1
  std::string job_id;
  int64_t allocation = 0;
  AllocationEnd end;
  friend bool operator==(const EndReport&, const EndReport&) = default;
};

struct StandingAgent {
  std::map<int64_t, Allocation> allocations;
  bool leaving = false;
  std::vector<EndReport> reports;  // to be said; whoever says them takes them out
  int64_t last_sequence = 0;
};

// ---- facts ----
struct AllocationGiven {
  AllocationOrder order;
};
struct AllocationTaken {
  std::string job_id;
  int64_t allocation = 0;
  std::string reason;
};
// A standing agent that was here before has started it; `end`: and seen its end.
struct AllocationFound {
  AllocationOrder order;
  std::optional<AllocationEnd> end = std::nullopt;
};
struct AllocationStarted {
  int64_t allocation = 0;
};
struct AllocationNotStarted {
  int64_t allocation = 0;
  std::string message;
};
struct AllocationTold {
  int64_t allocation = 0;
  int64_t now_ms = 0;
};
struct AllocationExited {
  int64_t allocation = 0;
  AllocationEnd end;
};
// Nothing of what the agent had started is left.
struct AllocationSwept {
  int64_t allocation = 0;
};
// weftd has all ends up to this sequence in its journal.
struct EndsAcknowledged {
  int64_t sequence = 0;
};
// The standing agent is to end, and all that it has started, once that is saved: the host leaves.
struct StandingEndAsked {};
struct StandingTimePassed {
  int64_t now_ms = 0;
};
using StandingFact =
    std::variant<AllocationGiven, AllocationTaken, AllocationFound, AllocationStarted,
                 AllocationNotStarted, AllocationTold, AllocationExited, AllocationSwept,
                 EndsAcknowledged, StandingEndAsked, StandingTimePassed>;

// The standing agent after `fact`. Orders may repeat: one that is known changes nothing.
StandingAgent Apply(StandingAgent agent, const StandingFact& fact);

// ---- duties: levels, to be asked for again at any time ----
enum class StandingDutyKind {
  kStart,
  kTell,   // TERM to its agent
  kKill,   // KILL to its agent
  kSweep,  // KILL to what that has left
};
struct StandingDuty {
  StandingDutyKind kind;
  int64_t allocation = 0;
  friend bool operator==(const StandingDuty&, const StandingDuty&) = default;
};
std::vector<StandingDuty> Decide(const StandingAgent& agent);

// It was asked to end, and nothing runs any more.
bool MayLeave(const StandingAgent& agent);

// Returns those that have not ended, for HostOffer.
std::vector<AllocationOrder> RunningOf(const StandingAgent& agent);

// InvalidArgument, naming the field: what is ordered makes no sense, or would be a danger as a part
// of a path or an environment.
absl::Status CheckOrder(const AllocationOrder& order);

// An agent that was told to end may take so long before it is killed.
inline constexpr int64_t kAgentPatienceMs = 10000;
// On a host that leaves its job saves first, as long as a save may take.
inline constexpr int64_t kLeavePatienceMs = 600000;
// A host has fewer slots than this; a weftd that orders more agents at once has lost count.
inline constexpr size_t kMostAllocations = 4096;

// How long to wait before the stream is dialled again after `failures` of them in a row that came
// to nothing. `spread` in [0, 1) keeps a fleet that has lost its weftd from coming back at once.
int64_t RedialMs(int failures, double spread);
inline constexpr int64_t kFirstRedialMs = 100;
inline constexpr int64_t kLastRedialMs = 5000;

}  // namespace weft
