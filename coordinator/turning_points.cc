#include "coordinator/turning_points.h"

#include <string.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace weft {
namespace {

void Cancel(Job& job) {
  job.phase = Phase::kCancelled;
  job.reason = absl::StrCat("stopped at once on request; the last checkpoint is of step ",
                            job.newest().step);
}

void Blame(Job& job, GenerationCause cause) {
  job.generation.cause = std::move(cause);
  if (job.generation.cause->kind == CauseKind::kOrdered) return;
  job.last_failure = Failure{job.generation.number, *job.generation.cause};
}

// Without checkpoints nobody can tell progress; then max_restarts alone is the limit.
bool MakesProgress(const Job& job) {
  return job.spec.checkpoint.interval != 0;
}

// The ranks of a host end with its lease, each in its own way: that is what it comes from.
GenerationCause LeaseCauseOf(const RankEnded& end, const Job& job) {
  const std::string who = end.rank < 0 ? "the ranks" : RankText(job, end.rank, end.host);
  return {CauseKind::kRoot, end.rank, end.host,
          absl::StrCat(who,
                       " stopped: the host's lease had run out, as its agent had no answer from "
                       "weftd in time"),
          end.last_stderr};
}

}  // namespace

void OpenNextGeneration(Job& job) {
  const int64_t number = job.generation.number + 1;
  job.generation = Generation();
  job.generation.number = number;
  job.generation.phase = GenerationPhase::kOpen;
}

std::string RankText(const Job& job, int rank, absl::string_view host) {
  std::string where(host);
  const Member* member = job.generation.members.Find(rank);
  if (where.empty() && member != nullptr) where = member->host;
  return where.empty() ? absl::StrCat("rank ", rank)
                       : absl::StrCat("rank ", rank, " (", where, ")");
}

GenerationCause CauseOf(const RankEnded& end, const Job& job) {
  if (end.lost_lease) return LeaseCauseOf(end, job);
  std::string what = end.message;
  if (end.signal != 0) {
    const char* name = sigabbrev_np(end.signal);
    what =
        absl::StrCat("killed by signal ", end.signal, name ? absl::StrCat(" (SIG", name, ")") : "");
  } else if (end.exit_code != 0) {
    what = absl::StrCat("exited with ", end.exit_code);
  }
  if (!end.message.empty() && what != end.message) absl::StrAppend(&what, ": ", end.message);
  if (what.empty())
    what = end.rank < 0 ? "the workers ended without a word" : "ended without a word";
  const std::string who = end.rank < 0 ? "" : RankText(job, end.rank, end.host) + " ";
  // 75: lost its coordinator. 1: has said why itself, and its words are better than that number. An
  // unknown rank says nothing that a rank's own fault does not.
  const bool left = end.signal == 0 && (end.exit_code == 75 || end.exit_code == 1);
  const bool consequence = end.rank < 0 || left;
  return {consequence ? CauseKind::kConsequence : CauseKind::kRoot, end.rank, end.host,
          absl::StrCat(who, what), end.last_stderr};
}

std::string LeavingText(const Job& job) {
  std::vector<std::string> names;
  for (const auto& [machine, host] : job.leaving) names.push_back(host.host);
  if (names.empty()) return "";
  std::sort(names.begin(), names.end());
  return absl::StrCat(names.size() == 1 ? "host " : "hosts ", absl::StrJoin(names, ", "),
                      names.size() == 1 ? " leaves" : " leave");
}

std::string NotSavedText(const Job& job) {
  const EndedSave& save = job.generation.ended_save;
  if (save.number == 0 || save.committed) return "";
  return absl::StrCat("; step ", save.step, " could not be saved (", save.reason, ")");
}

// A host of the generation that does not leave counts although its agent is away: it is waited for.
// So are hosts that are on their way to a generation that has not begun.
bool LacksHosts(const Job& job) {
  if (job.leaving.empty() || job.stop != StopLevel::kNone) return false;
  const Generation& generation = job.generation;
  std::set<std::string> machines;
  for (const auto& [machine, offer] : job.offers) machines.insert(machine);
  for (const HostShare& share : generation.shares) {
    if (job.leaving.count(share.machine) == 0) machines.insert(share.machine);
  }
  auto left = static_cast<int>(machines.size());
  if (generation.phase == GenerationPhase::kOpen && !generation.waited) {
    const int expected = job.expected_hosts > 0 ? job.expected_hosts : job.spec.cluster.nodes;
    left = std::max(left, expected - static_cast<int>(job.leaving.size()));
  }
  return left < LeastHosts(job.spec);
}

// Hosts that have left earlier are not what ends this generation.
bool IsLeft(const Job& job) {
  return std::any_of(job.generation.shares.begin(), job.generation.shares.end(),
                     [&](const HostShare& share) { return job.leaving.count(share.machine) > 0; });
}

void CloseForLackOfHosts(Job& job) {
  job.generation.phase = GenerationPhase::kClosed;
  Suspend(job);
}

void Suspend(Job& job) {
  job.lost_its_hosts = job.stop == StopLevel::kNone && !job.leaving.empty();
  job.phase = Phase::kSuspended;
  std::string reason = job.lost_its_hosts
                           ? absl::StrCat(LeavingText(job), ", ", job.offers.size(),
                                          " of at least ", LeastHosts(job.spec),
                                          " hosts are left; run the same command again "
                                          "to go on after step ",
                                          job.newest().step)
                           : "stopped on request, run the same command again to resume";
  const std::optional<GenerationCause>& cause = job.generation.cause;
  if (cause && cause->kind != CauseKind::kOrdered) {
    absl::StrAppend(&reason, " after step ", job.newest().step, "; while stopping, ", cause->text);
  }
  const std::string not_saved = NotSavedText(job);
  if (!not_saved.empty()) {
    absl::StrAppend(&reason, not_saved, ", so it will go on from step ", job.newest().step);
  }
  job.reason = reason;
}

void Close(Job& job) {
  job.generation.phase = GenerationPhase::kClosed;
  job.generation.saving.reset();
  if (IsOver(job.phase) || job.phase == Phase::kSubmitted) return;
  if (job.stop == StopLevel::kNow) {
    Cancel(job);
  } else if (job.stop == StopLevel::kSave || (IsLeft(job) && LacksHosts(job))) {
    Suspend(job);
  } else {
    OpenNextGeneration(job);
  }
}

void EndGeneration(Job& job, GenerationCause cause) {
  job.generation.phase = GenerationPhase::kStopping;
  job.generation.saving.reset();
  Blame(job, std::move(cause));
}

void ExplainFailure(Job& job, bool permanent) {
  const std::string text = job.generation.cause->text;
  if (permanent) {
    job.phase = Phase::kFailed;
    job.reason = text;
  } else if (MakesProgress(job) && job.failures_since_progress >= kMaxFailuresWithoutProgress) {
    job.phase = Phase::kFailed;
    job.reason =
        absl::StrCat(job.failures_since_progress,
                     " attempts failed without a new committed step; the last one: ", text);
  } else if (job.restarts_left < 0) {
    job.phase = Phase::kFailed;
    job.reason = absl::StrCat("no restart is left (fault_tolerance.max_restarts: ",
                              job.spec.fault_tolerance.max_restarts, "): ", text);
  } else {
    job.phase = Phase::kRecovering;
    job.reason = absl::StrCat(text, "; resuming after step ", job.newest().step);
  }
}

bool Fail(Job& job, GenerationCause cause, bool permanent) {
  Generation& generation = job.generation;
  if (IsLive(generation.phase)) {
    EndGeneration(job, std::move(cause));
    if (job.stop != StopLevel::kNone) return true;  // ends as it was asked to, when it is closed
    ++job.failures_since_progress;
    --job.restarts_left;
    ExplainFailure(job, permanent);
    return true;
  }
  if (generation.phase != GenerationPhase::kStopping || !generation.cause) return false;
  if (generation.cause->kind != CauseKind::kConsequence || cause.kind != CauseKind::kRoot) {
    return false;
  }
  Blame(job, std::move(cause));
  // The failure is not that of a newer submission, which only waits for these workers to go.
  if (job.phase == Phase::kRecovering || job.phase == Phase::kFailed) {
    ExplainFailure(job, permanent);
  }
  return true;
}

}  // namespace weft
