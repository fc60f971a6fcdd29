// Faults happen to the simulated fleet, and its promises have to hold all the same.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "coordinator/hosts.h"
#include "plan/errors.h"
#include "process/log.h"
#include "proto/job_text.h"
#include "tests/coordinator/fleet.h"
#include "tests/plan/sample_jobs.h"

namespace weft {

// ---- faults ----

void SimFleet::PlanFaults() {
  const int64_t faults = Number(0, 6);
  for (int64_t i = 0; i < faults; ++i) {
    After(Number(100, kFaultsUntilMs / 3), [this] { DoFault(); });
  }
  // Where steps are long, hosts also go while they are waited for to stay.
  const int64_t later = options_.step_ms > 100 ? Number(0, 2) : 0;
  for (int64_t i = 0; i < later; ++i) {
    After(Number(kFaultsUntilMs, 3 * kFaultsUntilMs), [this] { DoFault(); });
  }
}

// A fault is a host's, or the coordinator's.
void SimFleet::DoFault() {
  struct Fault {
    const char* name;
    bool of_host;
    void (*happen)(SimFleet&, Host&);
  };
  static constexpr std::array<Fault, 12> kFaults = {{
      {"a rank is killed", true, [](SimFleet& fleet, Host& host) { fleet.KillRank(host); }},
      {"ranks stand still", true,
       [](SimFleet& fleet, Host& host) {
         const int64_t until_ms = fleet.now_ms_ + fleet.Number(100, 12000);
         for (const auto& rank : host.ranks) {
           if (rank->alive && fleet.Chance(70)) Freeze(*rank, until_ms);
         }
       }},
      {"an agent is killed", true, [](SimFleet& fleet, Host& host) { fleet.KillAgent(host); }},
      {"a link is cut", true,
       [](SimFleet& fleet, Host& host) {
         host.cut_until_ms = std::max(host.cut_until_ms, fleet.now_ms_ + fleet.Number(50, 12000));
       }},
      {"weftd is killed", false,
       [](SimFleet& fleet, Host&) { fleet.CrashCoordinator(fleet.Number(20, 7000)); }},
      {"the disk hangs", false,
       [](SimFleet& fleet, Host&) {
         fleet.held_until_ms_ = fleet.now_ms_ + fleet.Number(100, 9000);
       }},
      {"a stream breaks", true, [](SimFleet& fleet, Host& host) { fleet.BreakStream(host); }},
      {"a host dies", true, [](SimFleet& fleet, Host& host) { fleet.Die(host); }},
      {"a host stands still", true,  // its agent and ranks run on afterwards
       [](SimFleet& fleet, Host& host) {
         host.cut_until_ms = std::max(host.cut_until_ms, fleet.now_ms_ + fleet.Number(500, 9000));
         host.frozen_until_ms = std::max(host.frozen_until_ms, host.cut_until_ms);
         for (const auto& rank : host.ranks) Freeze(*rank, host.cut_until_ms);
       }},
      {"an agent repeats itself", true, [](SimFleet& fleet, Host& host) { fleet.Repeat(host); }},
      {"an agent speaks of other generations", true,
       [](SimFleet& fleet, Host& host) { fleet.SpeakOfOthers(host); }},
      {"an agent vouches for others", true, [](SimFleet& fleet, Host& host) { fleet.Vouch(host); }},
  }};
  Host& host = AnyHost();
  const Fault& fault = kFaults[static_cast<size_t>(Number(0, kFaults.size() - 1))];
  ++faults_;
  ++result_.faults[fault.name];
  if (fault.of_host) faulty_.insert(absl::StrCat("h", host.index));
  if (!fault.of_host) coordinator_failed_ = true;
  Note(absl::StrCat("fault at h", host.index, ": ", fault.name));
  fault.happen(*this, host);
}

// All of a host at once; it comes back.
void SimFleet::Die(Host& host) {
  host.dead = true;
  for (const auto& rank : host.ranks) rank->alive = false;
  BreakStream(host);
  host.agent.alive = false;
  host.agent.pid = 0;
  After(Number(500, 15000), [this, &host] {
    host.dead = false;
    StartAgent(host);
  });
}

// Everything that it has ever said, though it was acknowledged.
void SimFleet::Repeat(Host& host) {
  if (!host.agent.alive || host.agent.stream == 0) return;
  for (const proto::AgentReport& report : host.agent.said) SendUp(host, report);
}

proto::AgentReport SimFleet::GoneReport(int64_t generation, const std::string& machine) const {
  proto::AgentReport report;
  report.mutable_group_ended()->set_generation(generation);
  report.mutable_group_ended()->set_machine(machine);
  report.mutable_group_ended()->mutable_cause()->set_rank(0);
  report.mutable_group_ended()->mutable_cause()->set_signal(SIGKILL);
  return report;
}

void SimFleet::SpeakOfOthers(Host& host) {
  if (driver_ == nullptr || !host.agent.alive || host.agent.stream == 0) return;
  const int64_t generation = driver_->job().generation.number;
  for (const int64_t other : {generation - 1, generation + 1000}) {
    SendUp(host, GoneReport(other, host.machine));
    proto::AgentReport report;
    report.mutable_rank_ended()->set_generation(other);
    report.mutable_rank_ended()->mutable_cause()->set_signal(SIGKILL);
    SendUp(host, report);
  }
}

// A host without a share in what runs says of all others that nothing is left there.
void SimFleet::Vouch(Host& host) {
  if (driver_ == nullptr || !host.agent.alive || host.agent.stream == 0) return;
  const Generation& generation = driver_->job().generation;
  if (generation.shares.empty() || FindShare(driver_->job(), host.machine) != nullptr) return;
  ++result_.faults["a spare vouches for others"];
  for (const HostShare& share : generation.shares) {
    SendUp(host, GoneReport(generation.number, share.machine));
    proto::AgentReport report;
    report.mutable_rank_ended()->set_generation(generation.number);
    report.mutable_rank_ended()->mutable_cause()->set_signal(SIGKILL);
    SendUp(host, report);
  }
}

// Whoever stands still already does not run on earlier for it.
void SimFleet::Freeze(Rank& rank, int64_t until_ms) {
  rank.frozen_until_ms = std::max(rank.frozen_until_ms, until_ms);
}

void SimFleet::KillRank(Host& host) {
  for (const auto& rank : host.ranks) {
    if (!rank->alive) continue;
    rank->frozen_until_ms = 0;
    return Exit(host, rank, 0, SIGKILL);
  }
}

// ---- promises ----

// A rank trains that has begun and that nothing has told to stop. One that stood still looks at
// its lease within kLookMs; what it computes meanwhile it cannot publish.
bool SimFleet::Trains(const Rank& rank) const {
  const int64_t since_ms = rank.frozen_until_ms > 0 ? rank.frozen_until_ms + kLookMs : 0;
  return rank.alive && rank.begun && !rank.finished && now_ms_ >= since_ms;
}

// One generation trains, and each of its ranks is one process: who may publish is never in doubt.
void SimFleet::CheckTrainers() {
  int64_t newest = 0;
  for (const Host& host : hosts_) {
    for (const auto& rank : host.ranks) {
      if (Trains(*rank)) newest = std::max(newest, rank->generation);
    }
  }
  std::set<int> ranks;
  for (const Host& host : hosts_) {
    for (const auto& rank : host.ranks) {
      if (!Trains(*rank)) continue;
      const std::string who = absl::StrCat("rank ", rank->rank, " of generation ", rank->generation,
                                           " on h", host.index);
      if (driver_ != nullptr && rank->generation < driver_->job().generation.number) {
        Broken(absl::StrCat(who, " trains, though nothing of its generation is left, it was said"));
      } else if (rank->generation != newest) {
        Broken(absl::StrCat(who, " trains beside generation ", newest));
      } else if (!ranks.insert(rank->rank).second) {
        Broken(absl::StrCat(who, " trains twice"));
      }
    }
  }
}

// A host is named as the root of a failure only if something went wrong there. When the coordinator
// itself was away, it may take what it missed for silence.
void SimFleet::CheckCulprit(const Job& job) {
  if (!job.last_failure || coordinator_failed_) return;
  const GenerationCause& cause = job.last_failure->cause;
  if (cause.kind != CauseKind::kRoot || cause.host.empty() || faulty_.count(cause.host) > 0) return;
  Broken(absl::StrCat(cause.host, " is blamed, where nothing went wrong: ", cause.text));
}

void SimFleet::Check() {
  CheckTrainers();
  if (driver_ == nullptr) return;
  const Job& job = driver_->job();
  if (job.generation.number < seen_generation_) Broken("a generation's number was used again");
  seen_generation_ = job.generation.number;
  CountLaunches(job);
  CheckCulprit(job);
  if (!options_.faults && job.generation.number > 1) Broken("a restart without a fault");
  // Three faults before the first save may end it; nothing less does.
  if (job.phase == Phase::kFailed && faults_ < kMaxFailuresWithoutProgress) {
    Broken(absl::StrCat("the job failed: ", job.reason));
  }
}

void SimFleet::CountLaunches(const Job& job) {
  if (job.generation.phase != GenerationPhase::kLaunched) return;
  if (std::exchange(launched_, job.generation.number) == job.generation.number) return;
  const int before = std::exchange(launched_on_, job.shape.nodes);
  if (before == 0) return;
  result_.shrinks += job.shape.nodes < before ? 1 : 0;
  result_.growths += job.shape.nodes > before ? 1 : 0;
}

bool SimFleet::IsThrough() const {
  if (driver_ == nullptr) return false;
  const Job& job = driver_->job();
  return IsOver(job.phase) && job.generation.phase == GenerationPhase::kClosed;
}

void SimFleet::Finish() {
  result_.virtual_ms = now_ms_;
  if (driver_ == nullptr || !result_.broken.empty()) return;
  const Job job = driver_->job();
  result_.end = absl::StrCat(PhaseName(job.phase));
  result_.generations = job.generation.number;
  if (!IsThrough()) {
    return Broken(absl::StrCat("the run has not ended: ", PhaseName(job.phase), ", generation ",
                               job.generation.number, ": ", job.reason));
  }
  for (const Host& host : hosts_) {
    for (const auto& rank : host.ranks) {
      // One that stands still cannot go; it does so before anything else once it runs again.
      // Nor does one that has reached nobody yet: it gives up by itself, and has nothing to do.
      const bool may_be = now_ms_ <= rank->frozen_until_ms || !rank->trains;
      if (rank->alive && !may_be) Broken(absl::StrCat("a process is left on h", host.index));
    }
  }
  driver_.reset();
  StartCoordinator();
  if (driver_ == nullptr) return;
  Job replayed = driver_->job();
  replayed.revision = job.revision;  // a restart is a fact, too
  replayed.offers = job.offers;
  if (!(replayed == job)) Broken("the journal replays to another state");
}

void SimFleet::Note(const std::string& what) const {
  if (options_.tells)
    std::fprintf(stderr, "%lld ms: %s\n", static_cast<long long>(now_ms_), what.c_str());
}

}  // namespace weft
