// HostAgent is the agent's mind: facts in (Apply), duties out (Decide), as coordinator/job.h does
// it. Pure: no clock, no process, no wire. It holds at most one generation's group on this host,
// and decides nothing about a job: what ends is reported, and who is to end is told.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

namespace weft {

// The kind says what starts the generation's ranks on this host.
enum class GroupKind {
  kForked,  // the agent itself
  kMpirun,  // mpirun, which the agent starts, for the ranks of all hosts
  kGuest,   // a daemon of the mpirun of another host: nothing runs before that is ordered
};

enum class DaemonPhase {
  kNone,  // not asked for
  kOrdered,
  kStarted,  // it has run, at least
};

enum class GroupPhase {
  kNone,      // nothing runs
  kOrdered,   // to be started
  kRunning,   // its processes may be there
  kStopping,  // told to end: TERM, so that ranks leave by themselves
  kKilling,   // KILL until nothing is left
};

// The end of a rank or, with rank -1, of what started the ranks.
struct RankEnd {
  int64_t generation = 0;
  int rank = -1;
  int signal = 0;
  int exit_code = 0;
  std::string message;        // beyond the numbers; may be empty
  std::string last_lines;     // of its output
  bool in_doubt = false;      // it may come from another host, which is silent
  bool is_elsewhere = false;  // of who has ended somewhere, this host does not know more
  int64_t seen_ms_ago = 0;    // where it is in doubt
  bool lost_lease = false;    // it had to stop, as its host's lease had run out
  friend bool operator==(const RankEnd&, const RankEnd&) = default;
};

// Nothing of the generation is left on this host.
struct GroupEnd {
  int64_t generation = 0;
  bool clean = false;  // every rank ended with 0
  std::string message;
  friend bool operator==(const GroupEnd&, const GroupEnd&) = default;
};

// This host was asked to save and stop, or to leave.
struct SaveRequest {
  bool leaves = false;
  friend bool operator==(const SaveRequest&, const SaveRequest&) = default;
};

// This host's mpirun wants a daemon on another one.
struct DaemonWish {
  int64_t generation = 0;
  std::string host;
  std::vector<std::string> args;
  friend bool operator==(const DaemonWish&, const DaemonWish&) = default;
};

// A fact for the coordinator.
struct HostReport {
  int64_t sequence = 0;  // counts an agent's reports from 1
  std::variant<RankEnd, GroupEnd, SaveRequest, DaemonWish> what;
  friend bool operator==(const HostReport&, const HostReport&) = default;
};

struct HostAgent {
  // The newest that was ever ordered here; it is held unless `phase` is kNone.
  int64_t generation = 0;
  GroupPhase phase = GroupPhase::kNone;
  GroupKind kind = GroupKind::kForked;
  int ranks = 0;                            // of the generation, on this host
  int ended_cleanly = 0;                    // of them
  DaemonPhase daemon = DaemonPhase::kNone;  // of a guest
  std::vector<std::string> daemon_args;     // of the same
  std::set<std::string> wished;             // hosts whose daemon this one's mpirun has asked for
  bool starter_failed = false;              // mpirun, or its daemon
  bool failed = false;                      // a rank or the starter ended as it should not
  bool has_other_hosts = false;             // which mpirun joins with this one
  // It comes from an end that nobody here has told of yet, and waits kDoubtMs for a better cause,
  // or for the stop that follows that.
  std::optional<RankEnd> doubtful;
  int64_t doubtful_since_ms = 0;  // 0: no time has passed
  std::string stop_reason;        // ordered; empty: not ordered
  int64_t stopping_since_ms = 0;
  bool save_requested = false;
  bool host_leaves = false;  // that was said, too
  bool leaving = false;
  std::vector<HostReport> reports;  // to be said; whoever says them takes them out
  int64_t last_sequence = 0;
};

// ---- facts ----
struct LaunchOrdered {
  int64_t generation = 0;
  int ranks = 0;
  GroupKind kind = GroupKind::kForked;
  bool has_other_hosts = false;
};
struct StopOrdered {
  int64_t generation = 0;
  std::string reason;
  int64_t now_ms = 0;
};
// A newer generation waits for this host: the one that it holds is over, whether or not it has
// heard.
struct Superseded {
  int64_t by_generation = 0;
};
struct GroupStarted {
  int64_t generation = 0;
};
struct GroupNotStarted {
  int64_t generation = 0;
  std::string message;
};
// Wait statuses are as wait(2) encodes them.
struct RankExited {
  int64_t generation = 0;
  int rank = 0;
  int wait_status = 0;
  std::string last_lines;
  bool shim_lost = false;   // its shim was killed, and it with that
  bool was_doomed = false;  // its starter had announced that it ends it
  bool lost_lease = false;  // the time was over for which it may go on
};
// mpirun, or its daemon here, has announced that it ends its ranks: it has lost one somewhere, or a
// host.
struct StarterEnds {
  int64_t generation = 0;
};
struct StarterExited {
  int64_t generation = 0;
  std::string name;  // "mpirun"
  int wait_status = 0;
  std::string words;  // its own, in case it failed
};
// This host's mpirun wants its daemon on that host. It may be said again.
struct DaemonWished {
  int64_t generation = 0;
  std::string host;
  std::vector<std::string> args;
};
struct DaemonOrdered {
  int64_t generation = 0;
  std::vector<std::string> args;
};
struct DaemonStarted {
  int64_t generation = 0;
};
struct DaemonNotStarted {
  int64_t generation = 0;
  std::string message;
};
// No process of the generation is left. Of a guest that waits for its daemon that says nothing: so
// it was from the beginning.
struct NothingLeft {
  int64_t generation = 0;
};
// A signal at the agent: the host is to save and stop, or it leaves.
struct SaveAsked {
  bool leaves = false;
};
// The one who started the agent is gone or has no more use for it, or the coordinator refuses it.
struct LeaveAsked {};
// Nobody has prolonged this host's right to train in time.
struct LeaseEnded {};
struct TimePassed {
  int64_t now_ms = 0;
};
using HostFact =
    std::variant<LaunchOrdered, StopOrdered, Superseded, GroupStarted, GroupNotStarted, RankExited,
                 StarterEnds, StarterExited, DaemonWished, DaemonOrdered, DaemonStarted,
                 DaemonNotStarted, NothingLeft, SaveAsked, LeaveAsked, LeaseEnded, TimePassed>;

// The agent after `fact`. A fact about another generation than the one it holds changes nothing,
// nor does a launch of one that is not newer than all it ever held: orders may repeat.
HostAgent Apply(HostAgent agent, const HostFact& fact);

// ---- duties: levels, to be asked for again at any time ----
struct StartGroup {};
struct StartDaemon {};  // with daemon_args
struct TermRanks {};    // once is enough
struct KillGroup {};
struct Leave {};
using HostDuty = std::variant<StartGroup, StartDaemon, TermRanks, KillGroup, Leave>;
std::optional<HostDuty> Decide(const HostAgent& agent);

// Ranks that were told to end may take so long before they are killed.
inline constexpr int64_t kStopPatienceMs = 1000;
// A host tells of its own loss within a few milliseconds, and a stop is as quick.
inline constexpr int64_t kDoubtMs = 200;

}  // namespace weft
