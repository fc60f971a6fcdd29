#include "coordinator/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "coordinator/host_memory.h"
#include "coordinator/hosts.h"
#include "coordinator/preflight.h"
#include "coordinator/turning_points.h"
#include "plan/errors.h"
#include "plan/spec/checkpoint_folder.h"
#include "plan/spec/layout_text.h"

namespace weft {
namespace {

constexpr size_t kKeptCheckpoints = 3;
constexpr char kWaitingForHosts[] = "waiting for hosts: ";
constexpr char kNoPlan[] = "there is no plan for ";

// ---- small questions ----

// Each of the layout's ranks has registered, and `count` counts all of them.
bool AreAll(const Job& job, int count) {
  return job.generation.members.size() == job.world_size() && count == job.world_size();
}

bool AreHeard(const Job& job) {
  const Members& members = job.generation.members;
  return AreAll(job, members.size() - members.suspects());
}

// No restart can cure a permanent failure: the same spec on the same machine fails in the same way.
bool IsPermanent(absl::StatusCode code) {
  return code == absl::StatusCode::kInvalidArgument ||
         code == absl::StatusCode::kFailedPrecondition || code == absl::StatusCode::kUnimplemented;
}

// A rank says one of these when it is a peer, or the coordinator, that failed.
bool IsConsequence(absl::StatusCode code) {
  return code == absl::StatusCode::kAborted || code == absl::StatusCode::kUnavailable ||
         code == absl::StatusCode::kDeadlineExceeded || code == absl::StatusCode::kCancelled;
}

const Member* FindMember(const Job& job, int64_t generation, int rank) {
  return generation == job.generation.number ? job.generation.members.Find(rank) : nullptr;
}

// ---- one function per fact; each returns whether it changed anything ----

bool Record(const Submitted& fact, Job& job) {
  if (!job.id.empty() && fact.request_id == job.request_id) return false;
  Job next;
  next.submissions = job.submissions + 1;
  next.id = fact.job_id.empty() ? absl::StrCat("job-", next.submissions) : fact.job_id;
  next.request_id = fact.request_id;
  next.spec = fact.spec;
  next.run_folder = fact.run_folder;
  next.layout = fact.layout;
  next.planned_for = fact.planned_for;
  next.data = fact.data;
  next.expected_hosts = fact.expected_hosts;
  next.slots_as_offered = fact.slots_as_offered;
  next.restarts_left = fact.spec.fault_tolerance.max_restarts;
  for (const SavedCheckpoint& older : fact.older) next.saved.push_back(older);
  next.saved.push_back({fact.after_step, fact.load_checkpoint});
  while (next.saved.size() > kKeptCheckpoints) next.saved.erase(next.saved.begin());
  next.run = fact.run;
  // Hosts that have left before are asked anew; one that still leaves says so again.
  next.offers = std::move(job.offers);
  next.fenced = std::move(job.fenced);
  next.generation = std::move(job.generation);
  if (next.generation.phase == GenerationPhase::kClosed) {  // the journal may be a new one
    next.generation.number = std::max(next.generation.number, fact.last_generation);
  }
  next.revision = job.revision;
  job = std::move(next);
  if (IsLive(job.generation.phase)) {
    EndGeneration(job, {CauseKind::kOrdered, -1, "", "a newer submission took its place"});
  } else if (job.generation.phase == GenerationPhase::kOpen) {
    job.generation.phase = GenerationPhase::kClosed;  // never started
  } else if (job.generation.phase == GenerationPhase::kStopping && !job.generation.cause) {
    job.generation.cause = {CauseKind::kOrdered, -1, "", "a newer submission took its place"};
  }
  return true;
}

// The first plan, or one for other hosts before a generation starts.
bool Record(const Planned& fact, Job& job) {
  const bool is_first = job.phase == Phase::kSubmitted && !job.id.empty();
  const bool is_anew = !is_first && job.generation.phase == GenerationPhase::kOpen;
  if (!is_first && !is_anew) return false;
  if (is_first) job.phase = Phase::kPlanned;
  job.reason = absl::StrCat(LayoutText(fact.layout), fact.note);
  job.layout = fact.layout;
  job.shape = ShapeOr(fact.shape, job.spec);
  job.planned_bytes = fact.planned_bytes;
  job.predicted_step_s = fact.predicted_step_s;
  if (job.generation.phase == GenerationPhase::kClosed) OpenNextGeneration(job);
  // A generation of an earlier submission may be stopping still.
  const bool is_open = job.generation.phase == GenerationPhase::kOpen;
  if (is_first && is_open && LacksHosts(job)) CloseForLackOfHosts(job);
  return true;
}

// A shape that was refused once is not tried again: the plan depends on nothing else.
bool Record(const PlanRefused& fact, Job& job) {
  if (job.phase != Phase::kSubmitted && fact.shape.nodes > 0) {
    const ClusterShape shape = ShapeOr(fact.shape, job.spec);
    if (!job.refused.insert(shape).second) return false;
    if (job.generation.phase != GenerationPhase::kOpen) return true;  // it does not grow, then
    const std::string small = SmallHostsText(job);
    const bool is_scarce = shape.slot_bytes > 0 || shape.host_bytes > 0;
    const bool ends = is_scarce && !job.was_launched && AllHaveCome(job) && !LargestShape(job);
    if (ends) {  // as where hosts fail their check: nobody else is waited for
      job.generation.phase = GenerationPhase::kClosed;
      job.phase = Phase::kFailed;
    }
    const absl::string_view waiting = ends ? "" : kWaitingForHosts;
    // A layout of fixed degrees needs more ranks: no news where memory leaves room for fewer.
    const bool asks_for_more =
        fact.code == absl::StatusCode::kInvalidArgument && absl::StrContains(job.reason, kNoPlan) &&
        std::any_of(job.refused.begin(), job.refused.end(),
                    [&](const ClusterShape& each) { return each.slots() > shape.slots(); });
    job.reason = asks_for_more
                     ? absl::StrCat(waiting, absl::StripPrefix(job.reason, kWaitingForHosts))
                     : absl::StrCat(waiting, kNoPlan, shape.nodes, " of ", job.spec.cluster.nodes,
                                    SlotsNote(shape, job.spec), MemoryNote(shape, job), ": ",
                                    fact.message, small.empty() ? "" : "; ", small);
    if (!ends && !job.leaving.empty() && !LargestShape(job)) CloseForLackOfHosts(job);
    return true;
  }
  if (job.phase != Phase::kSubmitted || job.id.empty()) return false;
  job.phase = Phase::kFailed;
  job.reason = fact.message;
  return true;
}

bool Record(const Launched& fact, Job& job) {
  Generation& generation = job.generation;
  if (fact.generation != generation.number || generation.phase != GenerationPhase::kOpen) {
    return false;
  }
  generation.phase = GenerationPhase::kLaunched;
  generation.shares = fact.shares;
  job.was_launched = true;
  job.phase = Phase::kStarting;
  job.reason = absl::StrCat("generation ", generation.number, ", after step ", job.newest().step,
                            LeftOutText(job));
  return true;
}

// After a restart of the coordinator: everybody is back.
void ResumeIfHeard(Job& job) {
  if (job.phase != Phase::kRecovering || !AreHeard(job)) return;
  if (job.generation.phase == GenerationPhase::kTraining) job.phase = Phase::kRunning;
  if (job.generation.phase == GenerationPhase::kSealed) job.phase = Phase::kStarting;
  job.reason = "all workers are back after the coordinator's restart";
}

bool Record(const Registered& fact, Job& job) {
  if (!CheckRegistration(job, fact).ok()) return false;
  Generation& generation = job.generation;
  if (generation.members.Add(fact.rank, Member{fact.host, fact.pid})) {
    if (generation.members.size() == job.world_size()) generation.phase = GenerationPhase::kSealed;
    ResumeIfHeard(job);
    return true;
  }
  if (!generation.members.Find(fact.rank)->suspect) return false;
  generation.members.SetSuspect(fact.rank, false);
  ResumeIfHeard(job);
  return true;
}

bool Record(const Ready& fact, Job& job) {
  const Member* member = FindMember(job, fact.generation, fact.rank);
  if (!member || member->phase != MemberPhase::kRegistered) return false;
  if (job.generation.phase != GenerationPhase::kSealed) return false;
  job.generation.members.SetPhase(fact.rank, MemberPhase::kReady);
  if (!AreAll(job, job.generation.members.up())) return true;
  job.generation.phase = GenerationPhase::kTraining;
  if (AreHeard(job)) {
    job.phase = Phase::kRunning;
    job.reason = absl::StrCat("training after step ", job.newest().step);
  }
  return true;
}

// The save that a rank speaks of, a new one if it is the first to; null if that one is over.
PendingSave* FindSave(Job& job, int64_t number, int64_t step) {
  Generation& generation = job.generation;
  const bool trains = generation.phase == GenerationPhase::kSealed ||
                      generation.phase == GenerationPhase::kTraining;
  // A rank repeats what was not acknowledged after a reconnect, however it went on meanwhile.
  if (!trains || step < job.newest().step || number <= generation.ended_save.number ||
      (generation.saving && number < generation.saving->number)) {
    return nullptr;
  }
  if (!generation.saving || generation.saving->number < number) {
    generation.saving = PendingSave{.number = number, .step = step, .shards = {}, .failures = {}};
  }
  return &*generation.saving;
}

// Once every rank has said its part, and some have nothing to offer.
void EndFailedSave(Job& job) {
  Generation& generation = job.generation;
  const PendingSave& saving = *generation.saving;
  const size_t heard = saving.shards.size() + saving.failures.size();
  if (saving.failures.empty() || static_cast<int>(heard) < job.world_size()) return;
  const auto& [rank, reason] = *saving.failures.begin();
  generation.ended_save = {saving.number, saving.step, false, rank, reason};
  job.wants_save = false;
  generation.saving.reset();
}

bool Record(const ShardWritten& fact, Job& job) {
  if (!FindMember(job, fact.generation, fact.rank)) return false;
  PendingSave* const saving = FindSave(job, fact.number, fact.step);
  if (saving == nullptr || saving->failures.count(fact.rank) > 0) return false;
  const auto [place, is_new] = saving->shards.try_emplace(fact.rank, fact.shard);
  if (!is_new && place->second == fact.shard) return false;
  place->second = fact.shard;
  EndFailedSave(job);
  return true;
}

bool Record(const SaveFailed& fact, Job& job) {
  if (!FindMember(job, fact.generation, fact.rank)) return false;
  PendingSave* const saving = FindSave(job, fact.number, fact.step);
  if (saving == nullptr || !saving->failures.try_emplace(fact.rank, fact.reason).second) {
    return false;
  }
  saving->shards.erase(fact.rank);  // rank 0's, if it is the commit that failed
  EndFailedSave(job);
  return true;
}

bool Record(const Committed& fact, Job& job) {
  if (fact.rank != 0 || !FindMember(job, fact.generation, fact.rank)) return false;
  if (job.generation.phase == GenerationPhase::kClosed) return false;
  if (job.phase == Phase::kSubmitted || job.phase == Phase::kPlanned) return false;
  const SavedCheckpoint saved{
      fact.step,
      absl::StrCat(CheckpointFolder(job.spec.checkpoint, job.run_folder), "/", fact.folder)};
  if (fact.step < job.newest().step) return false;
  const bool progress = fact.step > job.newest().step;
  const bool pending = job.generation.saving && job.generation.saving->step <= fact.step;
  if (!progress && !pending && saved == job.newest()) return false;
  if (!progress) job.saved.pop_back();
  job.saved.push_back(saved);
  if (job.saved.size() > kKeptCheckpoints) job.saved.erase(job.saved.begin());
  if (pending) {
    job.generation.ended_save = {job.generation.saving->number, fact.step, true, -1, ""};
    job.wants_save = false;
    job.generation.saving.reset();
  }
  if (progress) {
    job.failures_since_progress = 0;
    job.restarts_left = job.spec.fault_tolerance.max_restarts;
  }
  if (progress && job.generation.grows && !job.generation.yields && job.stop == StopLevel::kNone &&
      IsLive(job.generation.phase)) {
    EndGeneration(job, {CauseKind::kOrdered, -1, "", "more hosts are there"});
    job.phase = Phase::kRecovering;
    job.reason =
        absl::StrCat("more hosts are there: planned anew, resuming after step ", fact.step);
  }
  if (progress && job.phase == Phase::kRecovering && job.generation.cause &&
      job.generation.cause->kind != CauseKind::kOrdered) {
    ExplainFailure(job, /*permanent=*/false);  // it resumes after a later step than said before
  }
  return true;
}

// All ranks have saved and stopped. Where a host has asked for that, and no person, the rest goes
// on.
void EndSaved(Job& job) {
  if (!job.generation.yields || job.stop != StopLevel::kNone) return Suspend(job);
  job.phase = Phase::kRecovering;
  job.reason = absl::StrCat(LeavingText(job), NotSavedText(job), "; resuming after step ",
                            job.newest().step);
}

bool Record(const Finished& fact, Job& job) {
  const Member* member = FindMember(job, fact.generation, fact.rank);
  if (!member || member->phase == MemberPhase::kFinished) return false;
  if (!IsLive(job.generation.phase)) return false;
  job.generation.members.SetPhase(fact.rank, MemberPhase::kFinished);
  job.generation.members.SetSuspect(fact.rank, false);
  if (!AreAll(job, job.generation.members.finished())) return true;
  job.generation.phase = GenerationPhase::kStopping;
  if (fact.stopped) {
    EndSaved(job);
  } else {
    job.phase = Phase::kCompleted;
    job.reason = absl::StrCat("finished step ", fact.step, " of ", job.spec.training.steps);
  }
  return true;
}

// A checkpoint that does not load, for whatever reason, is not tried again as long as there is an
// older one. Initial weights are none: to begin anew is for people to say.
bool Record(const Faulted& fact, Job& job) {
  const Member* member = FindMember(job, fact.generation, fact.rank);
  if (member == nullptr) return false;
  const CauseKind kind =
      IsConsequence(fact.code) && !fact.loading ? CauseKind::kConsequence : CauseKind::kRoot;
  GenerationCause cause = {kind, fact.rank, member->host,
                           absl::StrCat(RankText(job, fact.rank, ""), ": ", fact.message)};
  // Who has waited in vain reports it, and is not to blame.
  if (kind == CauseKind::kConsequence && fact.code == absl::StatusCode::kDeadlineExceeded) {
    cause.rank = -1;
    cause.host.clear();
    cause.text = absl::StrCat("who is to blame is not known; reported by ", cause.text);
  }
  const bool load_failed = fact.loading && job.generation.phase == GenerationPhase::kSealed;
  if (!load_failed) return Fail(job, std::move(cause), IsPermanent(fact.code));
  const SavedCheckpoint failed = job.newest();
  const bool has_older = job.saved.size() > 1 && !job.saved[job.saved.size() - 2].folder.empty();
  if (has_older) job.saved.pop_back();
  const bool is_lost = !has_older && fact.code == absl::StatusCode::kDataLoss;
  if (is_lost) {
    absl::StrAppend(&cause.text, "; step ", failed.step,
                    " was saved, nothing usable is left: restore it, or start anew with --fresh");
  }
  return Fail(job, std::move(cause), is_lost);
}

bool Record(const Suspected& fact, Job& job) {
  const Member* member = FindMember(job, fact.generation, fact.rank);
  if (!member || member->suspect || member->phase == MemberPhase::kFinished) return false;
  if (!IsLive(job.generation.phase)) return false;
  job.generation.members.SetSuspect(fact.rank, true);
  return true;
}

bool Record(const WorkerLost& fact, Job& job) {
  const Member* member = FindMember(job, fact.generation, fact.rank);
  if (!member || !IsLive(job.generation.phase)) return false;
  const std::string text = absl::StrCat(RankText(job, fact.rank, ""), " lost: ", fact.reason);
  return Fail(job, {CauseKind::kRoot, fact.rank, member->host, text}, false);
}

bool Record(const Overdue& fact, Job& job) {
  Generation& generation = job.generation;
  if (fact.generation != generation.number) return false;
  if (generation.phase == GenerationPhase::kStopping && !generation.cause) {
    generation.cause = {CauseKind::kOrdered, -1, "", fact.reason};  // finished, but does not exit
    return true;
  }
  return IsLive(generation.phase) && Fail(job, {CauseKind::kRoot, -1, "", fact.reason}, false);
}

// After the last step there is nothing left to fail: the rank is in the way of an orderly end.
bool Record(const Hung& fact, Job& job) {
  Generation& generation = job.generation;
  if (fact.generation != generation.number) return false;
  const Hang& hang = fact.hang;
  std::string text = absl::StrCat(RankText(job, fact.rank, fact.host), " hangs in ", hang.phase);
  if (hang.step > 0) absl::StrAppend(&text, ", step ", hang.step);
  if (!hang.collective.empty()) absl::StrAppend(&text, ", ", hang.collective);
  absl::StrAppend(&text, ": ", hang.why);
  if (!hang.waiting.empty()) absl::StrAppend(&text, "; it holds up ", hang.waiting);
  GenerationCause cause = {CauseKind::kRoot, fact.rank, fact.host, text, "", hang};
  const bool is_orderly = generation.phase == GenerationPhase::kStopping && !generation.cause;
  if (!is_orderly) return Fail(job, std::move(cause), /*permanent=*/false);
  cause.kind = CauseKind::kOrdered;
  generation.cause = std::move(cause);
  return true;
}

// It is said, and no more: whoever is slow still trains.
bool Record(const RankSlow& fact, Job& job) {
  const bool trains = job.generation.phase == GenerationPhase::kTraining;
  if (fact.generation != job.generation.number || !trains) return false;
  if (job.phase != Phase::kRunning) return false;
  job.reason = fact.rank < 0
                   ? "training; no rank is slow any more"
                   : absl::StrCat(RankText(job, fact.rank, fact.host), " is slow: it computes for ",
                                  fact.share_percent, " % of each step, ", fact.times_tenths / 10,
                                  ".", fact.times_tenths % 10,
                                  " times as long as the ranks that do the same; they wait for it");
  return true;
}

// A rank that ends with 0 once it has finished is as it should be.
bool Record(const RankEnded& fact, Job& job) {
  if (fact.generation != job.generation.number) return false;
  const bool clean = fact.rank >= 0 && fact.signal == 0 && fact.exit_code == 0;
  if (!clean) return Fail(job, CauseOf(fact, job), /*permanent=*/false);
  const Member* member = FindMember(job, fact.generation, fact.rank);
  if (member != nullptr && member->phase == MemberPhase::kFinished) return false;
  GenerationCause cause = {
      CauseKind::kRoot, fact.rank, fact.host,
      absl::StrCat(RankText(job, fact.rank, fact.host), " exited with 0 before it had finished"),
      fact.last_stderr};
  return IsLive(job.generation.phase) && Fail(job, std::move(cause), /*permanent=*/false);
}

bool Record(const StopAsked& fact, Job& job) {
  const StopLevel level = fact.now ? StopLevel::kNow : StopLevel::kSave;
  if (job.id.empty() || IsOver(job.phase) || level <= job.stop) return false;
  job.stop = level;
  Generation& generation = job.generation;
  if (generation.phase == GenerationPhase::kOpen) generation.phase = GenerationPhase::kClosed;
  if (generation.phase == GenerationPhase::kClosed) {  // nothing runs, nothing is to be saved
    Close(job);
    if (!IsOver(job.phase)) Suspend(job);  // not planned yet
    return true;
  }
  const bool save = !fact.now && generation.phase == GenerationPhase::kTraining;
  if (!save && IsLive(generation.phase)) {
    EndGeneration(job, {CauseKind::kOrdered, -1, "", "a stop was requested"});
  }
  job.phase = Phase::kDraining;
  const std::string what = generation.yields ? LeavingText(job) : "stop requested";
  job.reason = save ? what + ": saving" : what;
  return true;
}

// A save that is under way may have begun before what the wish is about: another one follows.
bool Record(const CheckpointAsked&, Job& job) {
  if (job.id.empty() || IsOver(job.phase) || job.wants_save) return false;
  job.wants_save = true;
  ++job.save_wishes;
  return true;
}

// Agents come again and offer their hosts; one that holds the generation says so, and goes on.
bool Record(const Restarted&, Job& job) {
  Generation& generation = job.generation;
  const bool had_offers = !job.offers.empty();
  job.offers.clear();
  if (generation.phase == GenerationPhase::kOpen || generation.phase == GenerationPhase::kClosed) {
    return had_offers;
  }
  for (const auto& [rank, member] : generation.members.by_rank()) {
    generation.members.SetSuspect(rank, member.phase != MemberPhase::kFinished);
  }
  const bool adopts = job.phase == Phase::kStarting || job.phase == Phase::kRunning;
  if (adopts) {
    job.phase = Phase::kRecovering;
    job.reason = "the coordinator restarted; waiting for the workers";
  }
  return true;
}

}  // namespace

Job Apply(Job job, const Event& event) {
  const bool changed = std::visit([&](const auto& fact) { return Record(fact, job); }, event);
  if (changed) ++job.revision;
  return job;
}

absl::Status CheckRegistration(const Job& job, const Registered& worker) {
  const Generation& generation = job.generation;
  const Member* member = generation.members.Find(worker.rank);
  const bool known = member != nullptr;
  const bool same = known && member->pid == worker.pid && member->host == worker.host;
  // A finished worker whose last report was not acknowledged may come back to repeat it.
  const bool ending = generation.phase == GenerationPhase::kStopping && !generation.cause && same;
  if (worker.generation != generation.number || (!IsLive(generation.phase) && !ending)) {
    return absl::AbortedError(absl::StrCat(
        "generation ", worker.generation, " is over; the current one is ", generation.number,
        generation.cause ? absl::StrCat(" (", generation.cause->text, ")") : ""));
  }
  if (worker.world_size != job.world_size() || worker.rank < 0 || worker.rank >= job.world_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", worker.rank, " of ", worker.world_size,
                     " does not belong to generation ", generation.number, ", which has ",
                     job.world_size(), " ranks counted from 0; start exactly that many workers"));
  }
  if (known && !same) {
    return absl::AlreadyExistsError(absl::StrCat("rank ", worker.rank, " of generation ",
                                                 generation.number, " is process ", member->pid,
                                                 " on ", member->host, "; start each rank once"));
  }
  return absl::OkStatus();
}

bool IsLeftByItsHosts(const Job& job) {
  return job.phase == Phase::kSuspended && job.lost_its_hosts;
}

std::vector<Command> Decide(const Job& job) {
  const Generation& generation = job.generation;
  std::vector<Command> commands;
  if (job.id.empty()) return commands;
  if (job.phase == Phase::kSubmitted) commands.push_back(PlanJob{});
  switch (generation.phase) {
    case GenerationPhase::kOpen:
      if (job.phase != Phase::kSubmitted && ShapeToPlanFor(job).value_or(job.shape) != job.shape) {
        commands.push_back(PlanJob{});
        break;
      }
      commands.push_back(LaunchWorkers{generation.number});
      break;
    case GenerationPhase::kLaunched:  // the order may have been lost on its way
      commands.push_back(LaunchWorkers{generation.number});
      break;
    case GenerationPhase::kSealed:
      commands.push_back(StartTraining{generation.number});
      break;
    case GenerationPhase::kTraining:
      commands.push_back(BeginSteps{generation.number});
      if (job.stop != StopLevel::kNone || generation.yields) {
        commands.push_back(StopTraining{generation.number});
      }
      if (job.wants_save) commands.push_back(SaveSteps{generation.number, job.save_wishes});
      if (generation.saving &&
          static_cast<int>(generation.saving->shards.size()) == job.world_size()) {
        commands.push_back(
            GrantCommit{generation.number, generation.saving->step, generation.saving->number});
      }
      if (generation.ended_save.number > 0) {
        commands.push_back(EndSave{generation.number, generation.ended_save.number});
      }
      break;
    case GenerationPhase::kStopping:
      if (!generation.cause) break;  // finished: the workers leave by themselves
      commands.push_back(AbortWorkers{generation.number, generation.cause->text});
      commands.push_back(StopWorkers{generation.number, generation.cause->text});
      break;
    case GenerationPhase::kClosed:
      break;
  }
  return commands;
}

}  // namespace weft
