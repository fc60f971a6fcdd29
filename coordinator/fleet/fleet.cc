#include "coordinator/fleet/fleet.h"

#include <algorithm>
#include <utility>

#include "plan/errors.h"

namespace weft {
namespace {

// Each Record says whether the fact has changed anything.

bool Record(const HostJoined& fact, Fleet& fleet) {
  if (fact.machine.empty() || fact.slots < 1) return false;
  FleetHost& host = fleet.hosts[fact.machine];
  const FleetHost before = host;
  host.host = fact.host;
  host.owner = fact.owner;
  host.owner_uid = fact.owner_uid;
  host.lacks_tokens = fact.lacks_tokens;
  host.starts_as_submitter = fact.starts_as_submitter;
  host.leaves = fact.leaves;
  host.allows = fact.allows;
  host.slots = fact.slots;
  host.present = true;
  host.gone_ms = 0;
  return host != before;
}

bool HoldsPartOf(const FleetJob& job, const std::string& machine) {
  return std::any_of(job.shares.begin(), job.shares.end(),
                     [&](const FleetShare& share) { return share.machine == machine; });
}

// A host that nothing has to be remembered of is forgotten; what a job has of it goes on until the
// job's own lease says otherwise.
bool Record(const HostGone& fact, Fleet& fleet) {
  const auto found = fleet.hosts.find(fact.machine);
  if (found == fleet.hosts.end() || !found->second.present) return false;
  found->second.present = false;
  found->second.gone_ms = fact.unix_ms;
  const bool is_held = std::any_of(fleet.live.begin(), fleet.live.end(), [&](int64_t each) {
    return HoldsPartOf(fleet.jobs.at(each), fact.machine);
  });
  const bool remembered = is_held || found->second.drained || !found->second.failed_ms.empty();
  if (!remembered) fleet.hosts.erase(found);
  return true;
}

bool Record(const HostFailed& fact, Fleet& fleet) {
  const auto found = fleet.hosts.find(fact.machine);
  if (found == fleet.hosts.end()) return false;
  FleetHost& host = found->second;
  host.failed_ms.push_back(fact.unix_ms);
  std::erase_if(host.failed_ms,
                [&](int64_t each) { return each <= fact.unix_ms - kFailuresWithinMs; });
  if (std::ssize(host.failed_ms) >= kHostFailuresToLeaveOut) {
    host.left_out_until_ms = fact.unix_ms + kLeftOutMs;
    host.failed_ms.clear();
  }
  return true;
}

bool Record(const HostDrained& fact, Fleet& fleet) {
  const auto found = fleet.hosts.find(fact.machine);
  if (found == fleet.hosts.end()) return false;
  FleetHost& host = found->second;
  const FleetHost before = host;
  host.drained = true;
  host.drain_reason = fact.reason;
  host.moves = fact.moves;
  return host != before;
}

bool Record(const HostUndrained& fact, Fleet& fleet) {
  const auto found = fleet.hosts.find(fact.machine);
  if (found == fleet.hosts.end()) return false;
  FleetHost& host = found->second;
  const FleetHost before = host;
  host.drained = false;
  host.moves = false;
  host.drain_reason.clear();
  host.failed_ms.clear();
  host.left_out_until_ms = 0;
  return host != before;
}

bool Record(const JobQueued& fact, Fleet& fleet) {
  const FleetRequest& asked = fact.request;
  const bool is_valid =
      asked.slots_per_node >= 1 && asked.least_nodes >= 1 && asked.nodes >= asked.least_nodes;
  if (fact.job != fleet.newest_job + 1 || !is_valid) return false;
  fleet.newest_job = fact.job;
  fleet.jobs[fact.job] = {.request = asked, .place = ++fleet.newest_place};
  fleet.live.insert(fact.job);
  return true;
}

FleetJob* Find(Fleet& fleet, int64_t job, FleetPhase phase) {
  const auto found = fleet.jobs.find(job);
  if (found == fleet.jobs.end() || found->second.phase != phase) return nullptr;
  return &found->second;
}

bool Record(const JobPlaced& fact, Fleet& fleet) {
  FleetJob* const job = Find(fleet, fact.job, FleetPhase::kQueued);
  if (job == nullptr) return false;
  job->phase = FleetPhase::kPlaced;
  job->shares = fact.shares;
  job->after_save = AfterSave::kIsOver;
  job->moves = false;
  job->resized = false;
  job->placed_least_nodes = job->request.least_nodes;
  job->placed_nodes = job->request.nodes;
  job->reason.clear();
  job->allocation = ++fleet.newest_allocation;
  return true;
}

// Bounded in number and in age, by the time of the newest end.
void ForgetOldest(Fleet& fleet, int64_t now_ms) {
  while (!fleet.over.empty()) {
    const auto [ended_ms, number] = *fleet.over.begin();
    const bool is_kept =
        std::ssize(fleet.over) <= kMaxOverJobs && ended_ms > now_ms - kMaxOverAgeMs;
    if (is_kept) return;
    fleet.jobs.erase(number);
    fleet.over.erase(fleet.over.begin());
  }
}

void End(int64_t number, const std::string& end, const std::string& reason, int64_t unix_ms,
         Fleet& fleet) {
  FleetJob& job = fleet.jobs.at(number);
  job.phase = FleetPhase::kOver;
  job.end = end;
  job.reason = reason;
  job.ended_ms = unix_ms;
  job.shares.clear();
  fleet.live.erase(number);
  fleet.over.emplace(unix_ms, number);
  ForgetOldest(fleet, unix_ms);
}

// Only a person's stop ends a job that is saved: one that was to be paused waits for its resume,
// any other one keeps its place in the queue. So does one that has lost its hosts. JobMoves comes
// before: where a journal of an older version has none, that version took the job for over.
bool Record(const JobEnded& fact, Fleet& fleet) {
  FleetJob* const job = Find(fleet, fact.job, FleetPhase::kPlaced);
  if (job == nullptr) return false;
  const AfterSave after = std::exchange(job->after_save, AfterSave::kIsOver);
  const bool is_to_go_on = after != AfterSave::kIsOver || job->moves || job->resized;
  const bool is_saved = fact.end == "SUSPENDED" && is_to_go_on;
  const bool is_cut = job->moves && fact.end == "CANCELLED";
  const bool goes_on = job->stop == FleetStop::kNone && (is_saved || is_cut);
  if (!goes_on) {
    End(fact.job, fact.end, fact.reason, fact.unix_ms, fleet);
    return true;
  }
  job->shares.clear();
  job->moves = false;
  job->resized = false;
  job->phase = after == AfterSave::kIsPaused ? FleetPhase::kPaused : FleetPhase::kQueued;
  return true;
}

bool RaiseStop(const JobUnwanted& fact, FleetJob& job) {
  const FleetJob before = job;
  job.stop = std::max(job.stop, fact.now ? FleetStop::kNow : FleetStop::kSave);
  if (fact.save_until_ms > 0) job.stop_now_ms = fact.save_until_ms;
  return job != before;
}

bool Record(const JobUnwanted& fact, Fleet& fleet) {
  if (FleetJob* const placed = Find(fleet, fact.job, FleetPhase::kPlaced)) {
    return RaiseStop(fact, *placed);
  }
  FleetJob* job = Find(fleet, fact.job, FleetPhase::kQueued);
  if (job == nullptr) job = Find(fleet, fact.job, FleetPhase::kPaused);
  if (job == nullptr) return false;
  End(fact.job, "CANCELLED", fact.reason, fact.unix_ms, fleet);
  return true;
}

bool Record(const JobMoves& fact, Fleet& fleet) {
  FleetJob* const job = Find(fleet, fact.job, FleetPhase::kPlaced);
  if (job == nullptr) return false;
  return !std::exchange(job->moves, true);
}

bool Record(const PauseAsked& fact, Fleet& fleet) {
  if (FleetJob* const queued = Find(fleet, fact.job, FleetPhase::kQueued)) {
    queued->phase = FleetPhase::kPaused;
    return true;
  }
  FleetJob* const placed = Find(fleet, fact.job, FleetPhase::kPlaced);
  if (placed == nullptr || placed->stop != FleetStop::kNone) return false;
  return std::exchange(placed->after_save, AfterSave::kIsPaused) != AfterSave::kIsPaused;
}

void QueueLast(FleetJob& job, Fleet& fleet) {
  job.phase = FleetPhase::kQueued;
  job.place = ++fleet.newest_place;
}

bool Record(const ResumeAsked& fact, Fleet& fleet) {
  if (FleetJob* const paused = Find(fleet, fact.job, FleetPhase::kPaused)) {
    QueueLast(*paused, fleet);
    return true;
  }
  FleetJob* const over = Find(fleet, fact.job, FleetPhase::kOver);
  if (over != nullptr && over->end == "SUSPENDED") {
    fleet.over.erase({over->ended_ms, fact.job});
    fleet.live.insert(fact.job);
    over->stop = FleetStop::kNone;
    over->stop_now_ms = over->ended_ms = 0;
    over->end.clear();
    over->reason.clear();
    QueueLast(*over, fleet);
    return true;
  }
  // It saves already, and cannot be held back: it will be queued once it has.
  FleetJob* const placed = Find(fleet, fact.job, FleetPhase::kPlaced);
  if (placed == nullptr || placed->after_save != AfterSave::kIsPaused) return false;
  placed->after_save = AfterSave::kIsQueued;
  return true;
}

bool Record(const ResizeAsked& fact, Fleet& fleet) {
  const auto found = fleet.jobs.find(fact.job);
  if (found == fleet.jobs.end() || found->second.phase == FleetPhase::kOver) return false;
  FleetJob& job = found->second;
  if (fact.least_nodes < 1 || fact.nodes < fact.least_nodes) return false;
  if (job.request.least_nodes == fact.least_nodes && job.request.nodes == fact.nodes) return false;
  job.request.least_nodes = fact.least_nodes;
  job.request.nodes = fact.nodes;
  const bool as_placed =
      fact.least_nodes == job.placed_least_nodes && fact.nodes == job.placed_nodes;
  job.resized = job.phase == FleetPhase::kPlaced && !as_placed;
  return true;
}

}  // namespace

Fleet Apply(Fleet fleet, const FleetEvent& event) {
  const bool changed = std::visit([&](const auto& fact) { return Record(fact, fleet); }, event);
  if (changed) ++fleet.revision;
  return fleet;
}

}  // namespace weft
