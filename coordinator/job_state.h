// The state of a job and the facts that it is made of, as values: what happens to them is in job.h.
#pragma once
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/host_check_state.h"
#include "coordinator/members.h"
#include "coordinator/phases.h"
#include "plan/spec/job_spec.h"
#include "plan/spec/layout.h"

namespace weft {

struct Shard {
  std::string file;
  int64_t bytes = 0;
  std::string xxh3;
  friend bool operator==(const Shard&, const Shard&) = default;
};

// The checkpoint of one step on its way: complete once every rank's shard is durable, given up once
// every rank has said its part and some have none.
struct PendingSave {
  int64_t number = 0;  // counts a generation's saves: one step may be tried again
  int64_t step = 0;
  std::map<int, Shard> shards;          // by rank
  std::map<int, std::string> failures;  // by rank: why it has none
  friend bool operator==(const PendingSave&, const PendingSave&) = default;
};

// An EndedSave says how the newest save of a generation that all ranks know the end of went.
struct EndedSave {
  int64_t number = 0;  // as PendingSave's; 0: there was none
  int64_t step = 0;
  bool committed = false;
  int rank = -1;       // whose words `reason` are
  std::string reason;  // unless committed
  friend bool operator==(const EndedSave&, const EndedSave&) = default;
};

enum class CauseKind {
  kOrdered,      // asked for: a stop, a newer submission; no failure
  kConsequence,  // a peer noticed that somebody is gone: gives way to a root cause
  kRoot,
};

// A Hang says what a rank was at when it was found to hang, in words.
struct Hang {
  std::string phase;  // empty: it did not hang
  int64_t step = 0;
  std::string collective;
  std::string why;
  std::string waiting;
  int64_t age_ms = 0;
  std::vector<std::string> stacks = {};  // files
  friend bool operator==(const Hang&, const Hang&) = default;
};

// A GenerationCause is what ended a generation before it was through.
struct GenerationCause {
  CauseKind kind = CauseKind::kRoot;
  int rank = -1;  // -1: unknown
  std::string host;
  std::string text;         // "rank 1 (node3) killed by signal 9 (SIGKILL)"
  std::string detail = {};  // more lines, its last words; or empty
  Hang hang = {};
  friend bool operator==(const GenerationCause&, const GenerationCause&) = default;
};

// A host that an agent has brought, and that is reached at the moment.
struct OfferedHost {
  std::string host;
  int slots = 0;  // ranks that it takes; 0: as many as the job says of a node
  std::vector<std::string> addresses = {};
  int64_t agent_pid = 0;
  int gpus = 0;                // 0: none, or not known
  int cores = 0;               // 0: not known
  std::string domain = {};     // hosts of one domain fail together; empty: nothing is known
  int64_t free_bytes = 0;      // of its memory, when its agent came; 0: not known
  int64_t gpu_free_bytes = 0;  // of the GPU with the least; 0: not known
  std::string gpu_text = {};   // which one that is, and who holds the rest
  friend bool operator==(const OfferedHost&, const OfferedHost&) = default;
};

// A ClusterShape says what a plan is made for: so many hosts, each of which takes so many ranks,
// and what memory they have where that is less than the job says.
struct ClusterShape {
  int nodes = 0;
  int slots_per_node = 0;
  int64_t slot_bytes = 0;  // of a rank; 0: as the job says
  int64_t host_bytes = 0;  // of a host, for what is offloaded from GPUs; 0: as the job says
  int64_t slots() const { return int64_t{nodes} * slots_per_node; }
  friend auto operator<=>(const ClusterShape&, const ClusterShape&) = default;
};

// A host that goes, in good order.
struct LeavingHost {
  std::string host;
  int64_t agent_pid = 0;
  friend bool operator==(const LeavingHost&, const LeavingHost&) = default;
};

// The part of a generation that a host has.
struct HostShare {
  std::string machine;  // Hello.machine
  std::string host;
  std::vector<std::string> addresses;
  std::vector<int> ranks;  // ascending
  bool gone = false;       // nothing of the generation is left there, which is proven
  friend bool operator==(const HostShare&, const HostShare&) = default;
};

struct Generation {
  int64_t number = 0;
  GenerationPhase phase = GenerationPhase::kClosed;
  bool waited = false;            // of kOpen: no more hosts are waited for
  bool grows = false;             // ends at the next checkpoint, for more hosts are there
  bool yields = false;            // saves and ends, for a host of it leaves
  std::vector<HostShare> shares;  // of those that were told to launch it; rank 0's first
  Members members;
  std::optional<PendingSave> saving;
  EndedSave ended_save;
  std::optional<GenerationCause> cause;  // empty: nothing cut it short
  friend bool operator==(const Generation&, const Generation&) = default;
};

struct Failure {
  int64_t generation = 0;
  GenerationCause cause;
  friend bool operator==(const Failure&, const Failure&) = default;
};

enum class StopLevel { kNone, kSave, kNow };

struct SavedCheckpoint {
  int64_t step = 0;
  std::string folder;  // absolute; empty: initial weights
  friend bool operator==(const SavedCheckpoint&, const SavedCheckpoint&) = default;
};

// The fewest hosts that the job goes on with.
inline int LeastHosts(const JobSpec& spec) {
  return spec.hosts.least_nodes > 0 ? spec.hosts.least_nodes : spec.cluster.nodes;
}

struct Job {
  std::string id;  // "job-1"; empty: nothing was submitted yet
  int64_t submissions = 0;
  std::string request_id;
  JobSpec spec;
  std::string run_folder;
  RunIdentity run;
  std::optional<Layout> layout;    // until it is planned: what came with the job; empty: nothing
  std::string planned_for;         // Submitted's
  ClusterShape shape;              // that `layout` was planned for
  std::set<ClusterShape> refused;  // for these there is no plan
  // Machines on which something cannot be ended, with the process of their agent: they get no
  // ranks until another agent comes, which has found nothing there.
  std::map<std::string, int64_t> fenced;
  // Machines that leave get no ranks until another agent comes there.
  std::map<std::string, LeavingHost> leaving;
  bool lost_its_hosts = false;    // suspended by no person: too few are left, as some leave
  int expected_hosts = 0;         // no more than these are on their way; 0: nobody knows
  bool slots_as_offered = false;  // Submitted's
  std::map<std::string, OfferedHost> offers;  // by machine
  std::map<std::string, HostCheck> checks;    // by machine; outlive a stream that breaks
  std::vector<std::string> data;              // Submitted's
  int64_t planned_bytes = 0;                  // of the largest rank
  double predicted_step_s = 0;
  Phase phase = Phase::kSubmitted;
  std::string reason;
  StopLevel stop = StopLevel::kNone;
  int64_t save_wishes = 0;  // how often somebody wanted a checkpoint while nobody waited for one
  bool wants_save = false;  // the newest of them is open
  int restarts_left = 0;
  int failures_since_progress = 0;  // failed generations without a newly committed step
  std::optional<Failure> last_failure;
  std::vector<SavedCheckpoint> saved;  // oldest first, at most 3; never empty once submitted
  bool was_launched = false;           // some generation of it
  Generation generation;
  int64_t revision = 0;  // how many facts have changed it

  const SavedCheckpoint& newest() const { return saved.back(); }
  int world_size() const { return layout ? layout->world_size() : 0; }
  friend bool operator==(const Job&, const Job&) = default;
};

// ---- facts ----
struct Submitted {
  std::string request_id;
  JobSpec spec;
  std::string run_folder;
  std::optional<Layout> layout;
  std::string planned_for;  // fingerprint of the cluster of `layout`; empty: the job's own
  std::string load_checkpoint;
  int64_t after_step = 0;
  RunIdentity run;
  std::vector<SavedCheckpoint> older;  // of the same run, oldest first
  int64_t last_generation = 0;         // highest that the run has left on the disk
  std::vector<std::string> data = {};  // fingerprints of the job's data files
  int expected_hosts = 0;              // whose agents are started for it; 0: nobody knows
  bool slots_as_offered = false;       // nobody has said how many slots a host has
  std::string job_id = {};             // that a fleet has given it; empty: it is counted
  friend bool operator==(const Submitted&, const Submitted&) = default;
};
struct Planned {
  Layout layout;
  int64_t planned_bytes = 0;
  double predicted_step_s = 0;
  std::string note = {};    // "; planned anew: ..."; empty: nothing to say
  ClusterShape shape = {};  // that it is for; 0 of either: as the job says
  friend bool operator==(const Planned&, const Planned&) = default;
};
struct PlanRefused {
  absl::StatusCode code = absl::StatusCode::kFailedPrecondition;
  std::string message;
  ClusterShape shape = {};  // as Planned's
  friend bool operator==(const PlanRefused&, const PlanRefused&) = default;
};
struct Launched {
  int64_t generation = 0;
  std::vector<HostShare> shares = {};
  friend bool operator==(const Launched&, const Launched&) = default;
};
struct Registered {
  int64_t generation = 0;
  int rank = 0;
  std::string host;
  int64_t pid = 0;
  std::string version;
  int world_size = 0;
  friend bool operator==(const Registered&, const Registered&) = default;
};
struct Ready {
  int64_t generation = 0;
  int rank = 0;
  int64_t after_step = 0;
  int64_t allocated_bytes = 0;
  int64_t planned_bytes = 0;
  friend bool operator==(const Ready&, const Ready&) = default;
};
struct ShardWritten {
  int64_t generation = 0;
  int rank = 0;
  int64_t step = 0;
  int64_t number = 0;
  Shard shard;
  friend bool operator==(const ShardWritten&, const ShardWritten&) = default;
};
struct SaveFailed {
  int64_t generation = 0;
  int rank = 0;
  int64_t step = 0;
  int64_t number = 0;
  std::string reason;
  friend bool operator==(const SaveFailed&, const SaveFailed&) = default;
};
struct Committed {
  int64_t generation = 0;
  int rank = 0;
  int64_t step = 0;
  std::string folder;  // "step-200", inside the checkpoint folder
  int64_t bytes = 0;
  friend bool operator==(const Committed&, const Committed&) = default;
};
struct Finished {
  int64_t generation = 0;
  int rank = 0;
  int64_t step = 0;
  bool stopped = false;
  friend bool operator==(const Finished&, const Finished&) = default;
};
struct Faulted {
  int64_t generation = 0;
  int rank = 0;
  absl::StatusCode code = absl::StatusCode::kUnknown;
  std::string message;
  bool loading = false;  // while the checkpoint was read
  friend bool operator==(const Faulted&, const Faulted&) = default;
};
struct Suspected {
  int64_t generation = 0;
  int rank = 0;
  std::string reason;
  friend bool operator==(const Suspected&, const Suspected&) = default;
};
struct WorkerLost {
  int64_t generation = 0;
  int rank = 0;
  std::string reason;
  friend bool operator==(const WorkerLost&, const WorkerLost&) = default;
};
struct Overdue {
  int64_t generation = 0;
  std::string reason;
  friend bool operator==(const Overdue&, const Overdue&) = default;
};
// A rank holds the others up for longer than what it does may take.
struct Hung {
  int64_t generation = 0;
  int rank = 0;
  std::string host;
  Hang hang = {};
  friend bool operator==(const Hung&, const Hung&) = default;
};
// A rank computes for longer than those that do the same, and they wait for it; rank -1: none does
// any more.
struct RankSlow {
  int64_t generation = 0;
  int rank = -1;
  std::string host;
  int share_percent = 0;  // of its step, in which it computes
  int times_tenths = 0;   // of what its peers take, in tenths
  int64_t since_step = 0;
  friend bool operator==(const RankSlow&, const RankSlow&) = default;
};
// The host has processes of the generation that cannot be killed: it gets no lease any more.
struct HostFenced {
  int64_t generation = 0;
  std::string machine;
  std::string reason;
  friend bool operator==(const HostFenced&, const HostFenced&) = default;
};
// A process of the generation has ended, says its parent.
struct RankEnded {
  int64_t generation = 0;
  int rank = -1;  // -1: what started the ranks
  std::string host;
  int signal = 0;
  int exit_code = 0;
  std::string message;
  std::string last_stderr;
  bool lost_lease = false;  // it had to stop, as its host's lease had run out
  friend bool operator==(const RankEnded&, const RankEnded&) = default;
};
// An agent brings its host, or another one takes its place.
struct HostOffered {
  std::string machine;
  std::string host;
  int slots = 0;
  std::vector<std::string> addresses = {};
  int64_t agent_pid = 0;
  int gpus = 0;
  int cores = 0;
  std::string domain = {};
  int64_t free_bytes = 0;
  int64_t gpu_free_bytes = 0;
  std::string gpu_text = {};
  friend bool operator==(const HostOffered&, const HostOffered&) = default;
};
// The agent of the host is not reached at the moment; what it has started goes on, as long as its
// lease does.
struct HostAway {
  std::string machine;
  friend bool operator==(const HostAway&, const HostAway&) = default;
};
// The lease of the host is over: its ranks have ended themselves.
struct HostLost {
  int64_t generation = 0;
  std::string machine;
  std::string reason;
  friend bool operator==(const HostLost&, const HostLost&) = default;
};
// The host goes, in good order: what runs there is saved, and goes on elsewhere.
struct HostLeaves {
  std::string machine;
  friend bool operator==(const HostLeaves&, const HostLeaves&) = default;
};
// The open generation does not wait for more hosts than are there now.
struct HostsAwaited {
  int64_t generation = 0;
  friend bool operator==(const HostsAwaited&, const HostsAwaited&) = default;
};
// The open generation is not launched, though enough hosts are there.
struct LaunchWaits {
  int64_t generation = 0;
  std::string reason;
  friend bool operator==(const LaunchWaits&, const LaunchWaits&) = default;
};
// More hosts than the generation has been planned for are there, have been for a while, and there
// is a plan for them.
struct MoreHosts {
  int64_t generation = 0;
  friend bool operator==(const MoreHosts&, const MoreHosts&) = default;
};
// All processes of the generation are gone from `machine`, says an agent there.
struct AttemptEnded {
  int64_t generation = 0;
  bool clean = false;
  int rank = -1;  // of the first cause; -1: unknown
  std::string host;
  int signal = 0;
  int exit_code = 0;
  std::string message;
  std::string last_stderr;
  std::string machine = {};
  friend bool operator==(const AttemptEnded&, const AttemptEnded&) = default;
};
struct StopAsked {
  bool now = false;
  friend bool operator==(const StopAsked&, const StopAsked&) = default;
};
// Somebody wants a checkpoint, whatever the interval.
struct CheckpointAsked {
  friend bool operator==(const CheckpointAsked&, const CheckpointAsked&) = default;
};
// The coordinator was started on this journal.
struct Restarted {
  friend bool operator==(const Restarted&, const Restarted&) = default;
};

using Event = std::variant<Submitted, Planned, PlanRefused, Launched, Registered, Ready,
                           ShardWritten, SaveFailed, Committed, Finished, Faulted, Suspected,
                           WorkerLost, Overdue, RankEnded, AttemptEnded, HostOffered, HostAway,
                           HostLost, HostsAwaited, LaunchWaits, MoreHosts, HostChecked, StopAsked,
                           CheckpointAsked, Restarted, Hung, RankSlow, HostFenced, HostLeaves>;

// A failed generation ends the job after this many of them without a newly committed step.
inline constexpr int kMaxFailuresWithoutProgress = 3;

}  // namespace weft
