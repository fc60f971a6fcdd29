#include "coordinator/liveness.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "coordinator/hosts.h"
#include "coordinator/preflight.h"

namespace weft {
namespace {

constexpr size_t kNamedRanks = 8;

// "2, 3 and 5 more"
std::string RankList(const std::vector<int>& ranks) {
  const size_t named = std::min(ranks.size(), kNamedRanks);
  std::string text =
      absl::StrJoin(ranks.begin(), ranks.begin() + static_cast<int64_t>(named), ", ");
  if (named < ranks.size()) absl::StrAppend(&text, " and ", ranks.size() - named, " more");
  return text;
}

// Ranks that have not got further than the generation waits for.
std::vector<int> Missing(const Job& job) {
  std::vector<int> missing;
  for (int rank = 0; rank < job.world_size(); ++rank) {
    const Member* member = job.generation.members.Find(rank);
    const bool absent = member == nullptr;
    const bool behind = !absent && job.generation.phase == GenerationPhase::kSealed &&
                        member->phase == MemberPhase::kRegistered;
    if (absent || behind) missing.push_back(rank);
  }
  return missing;
}

int64_t EndOf(const Clocks& clocks, const std::string& machine) {
  const auto found = clocks.lease_end_ms.find(machine);
  return found == clocks.lease_end_ms.end() ? 0 : found->second;
}

// Ranks that finished leave in their own time; those that were cut short obey the lease.
void AddLostHosts(const Job& job, const Clocks& clocks, int64_t now_ms, int64_t lease_ms,
                  std::vector<Event>& events) {
  const bool leaves = job.generation.phase == GenerationPhase::kStopping && !job.generation.cause;
  const int64_t grace_ms = leaves ? clocks.generation_since_ms + kExitGraceMs : 0;
  for (const HostShare& share : job.generation.shares) {
    const int64_t end_ms = std::max(EndOf(clocks, share.machine), grace_ms);
    if (share.gone || now_ms <= end_ms + kSilenceMarginMs) continue;
    events.push_back(
        HostLost{job.generation.number, share.machine,
                 absl::StrFormat("nothing heard of its agent since its lease of %.1f s ended",
                                 static_cast<double>(lease_ms) / 1000)});
  }
}

void AddHosts(const Job& job, const Clocks& clocks, int64_t now_ms, std::vector<Event>& events) {
  if (job.generation.phase == GenerationPhase::kOpen) {
    const int64_t first_ms = AllHaveCome(job) ? 0 : kFirstHostsMs;
    const int64_t patience_ms = job.was_launched ? kLastCallMs : first_ms;
    const bool waits = !job.generation.waited && HostsInHand(job) < job.spec.cluster.nodes;
    if (waits && now_ms - clocks.generation_since_ms > patience_ms) {
      events.push_back(HostsAwaited{job.generation.number});
    }
    return;
  }
  const bool is_full = !job.slots_as_offered && job.shape == ShapeOr({}, job.spec);
  if (is_full || job.generation.grows) return;
  const bool more = MayGrow(job);
  const double steady_ms = job.spec.fault_tolerance.steady_seconds * 1000;
  if (more && static_cast<double>(now_ms - clocks.hosts_since_ms) > steady_ms) {
    events.push_back(MoreHosts{job.generation.number});
  }
}

void AddLost(const Job& job, const Clocks& clocks, int64_t now_ms, int64_t lease_ms,
             std::vector<Event>& events) {
  if (now_ms <= clocks.none_silent_until_ms) return;
  std::map<int, int64_t> watched;
  std::set<int> on_silent_hosts;  // the host is to blame, or has time that was promised
  for (const HostShare& share : job.generation.shares) {
    const bool has_lease = now_ms < EndOf(clocks, share.machine);
    if (has_lease && clocks.promised.count(share.machine) == 0) continue;
    on_silent_hosts.insert(share.ranks.begin(), share.ranks.end());
  }
  for (const auto& [rank, member] : job.generation.members.by_rank()) {
    const auto heard = clocks.heard_ms.find(rank);
    if (member.phase == MemberPhase::kFinished || heard == clocks.heard_ms.end()) continue;
    if (on_silent_hosts.count(rank) == 0) watched.insert(*heard);
  }
  for (const SilentRank& silent : Lost(watched, now_ms, lease_ms)) {
    events.push_back(WorkerLost{job.generation.number, silent.rank, silent.reason});
  }
}

// Ranks that others wait for in a save: they have not said how their part of it went, or, if all
// have, rank 0, which commits.
std::vector<int> SlowSavers(const Job& job) {
  const PendingSave& saving = *job.generation.saving;
  std::vector<int> slow;
  for (int rank = 0; rank < job.world_size(); ++rank) {
    if (saving.shards.count(rank) + saving.failures.count(rank) == 0) slow.push_back(rank);
  }
  if (slow.empty()) slow.push_back(0);
  return slow;
}

void AddSaveOverdue(const Job& job, const Clocks& clocks, int64_t now_ms,
                    std::vector<Event>& events) {
  if (!job.generation.saving || clocks.save != job.generation.saving->number) return;
  if (now_ms - clocks.save_since_ms <= kSaveLimitMs) return;
  events.push_back(Overdue{
      job.generation.number,
      absl::StrFormat("ranks %s of %d have not done their part of saving step %d within %g s; see "
                      "their logs, and the disk of checkpoint.folder",
                      RankList(SlowSavers(job)), job.world_size(), job.generation.saving->step,
                      kSaveLimitMs / 1000.0)});
}

void AddStartOverdue(const Job& job, const Clocks& clocks, int64_t now_ms,
                     std::vector<Event>& events) {
  const bool launched = job.generation.phase == GenerationPhase::kLaunched;
  const double init_s = job.spec.comm.init_timeout_seconds;
  const double limit_s = launched ? init_s : std::max(init_s, kLoadLimitMs / 1000.0);
  if (static_cast<double>(now_ms - clocks.generation_since_ms) <= limit_s * 1000) return;
  const std::string limit = limit_s > init_s
                                ? absl::StrFormat("%g s", limit_s)
                                : absl::StrFormat("comm.init_timeout_seconds %g", limit_s);
  events.push_back(Overdue{
      job.generation.number,
      absl::StrFormat(
          "ranks %s of %d %s within %s; see their logs", RankList(Missing(job)), job.world_size(),
          launched ? "have not registered" : "have not loaded what they start from", limit)});
}

void AddStoppingOverdue(const Job& job, const Clocks& clocks, int64_t now_ms,
                        std::vector<Event>& events) {
  if (!job.generation.cause && now_ms - clocks.generation_since_ms > kExitGraceMs) {
    events.push_back(Overdue{
        job.generation.number,
        absl::StrFormat("the finished workers did not exit within %g s", kExitGraceMs / 1000.0)});
  }
}

}  // namespace

std::vector<SilentRank> Lost(const std::map<int, int64_t>& heard_ms, int64_t now_ms,
                             int64_t lease_ms) {
  std::vector<SilentRank> lost;
  for (const auto& [rank, last_ms] : heard_ms) {
    const int64_t silent_ms = now_ms - last_ms;
    if (silent_ms <= lease_ms) continue;
    lost.push_back({rank, absl::StrFormat("nothing heard for %.1f s, the lease is %.1f s",
                                          static_cast<double>(silent_ms) / 1000,
                                          static_cast<double>(lease_ms) / 1000)});
  }
  return lost;
}

int64_t NoneSilentUntil(const Clocks& clocks, int64_t lease_ms) {
  int64_t earliest_ms = std::numeric_limits<int64_t>::max();
  for (const auto& [rank, heard_ms] : clocks.heard_ms) {
    earliest_ms = std::min(earliest_ms, heard_ms);
  }
  return clocks.heard_ms.empty() ? 0 : earliest_ms + lease_ms;
}

Clocks ShiftedByStall(Clocks clocks, int64_t now_ms, int64_t expected_ms) {
  const int64_t stall_ms = now_ms - clocks.looked_ms - expected_ms;
  if (clocks.looked_ms != 0 && stall_ms > 0) {
    for (auto& [rank, heard_ms] : clocks.heard_ms) heard_ms = std::min(now_ms, heard_ms + stall_ms);
    clocks.generation_since_ms = std::min(now_ms, clocks.generation_since_ms + stall_ms);
    clocks.save_since_ms = std::min(now_ms, clocks.save_since_ms + stall_ms);
  }
  clocks.looked_ms = now_ms;
  return clocks;
}

std::vector<Event> Expired(const Job& job, const Clocks& clocks, int64_t now_ms, int64_t lease_ms) {
  std::vector<Event> events;
  switch (job.generation.phase) {
    case GenerationPhase::kClosed:
      break;
    case GenerationPhase::kOpen:
      AddHosts(job, clocks, now_ms, events);
      break;
    case GenerationPhase::kLaunched:
    case GenerationPhase::kSealed:
      AddLostHosts(job, clocks, now_ms, lease_ms, events);
      AddLost(job, clocks, now_ms, lease_ms, events);
      AddStartOverdue(job, clocks, now_ms, events);
      break;
    case GenerationPhase::kTraining:
      AddLostHosts(job, clocks, now_ms, lease_ms, events);
      AddHosts(job, clocks, now_ms, events);
      AddLost(job, clocks, now_ms, lease_ms, events);
      AddSaveOverdue(job, clocks, now_ms, events);
      break;
    case GenerationPhase::kStopping:
      AddLostHosts(job, clocks, now_ms, lease_ms, events);
      AddStoppingOverdue(job, clocks, now_ms, events);
      break;
  }
  return events;
}

}  // namespace weft
