#include "launcher/commands/job_preparation.h"

#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/run/run_identity.h"
#include "plan/errors.h"
#include "plan/search/search.h"
#include "process/run_files.h"
#include "process/version.h"
#include "text/json_lines.h"

namespace weft {
namespace {

// A TakenFolder is a run folder whose lock is held, and what is known of the run in it.
struct TakenFolder {
  RunLock lock;
  std::optional<PreviousRun> previous;
  RunIdentified run;
  std::vector<MovedRun> moved_aside;
};

absl::StatusOr<TakenFolder> TakeFolder(const RunPaths& paths) {
  ASSIGN_OR_RETURN(RunLock lock, RunLock::Take(paths.folder));
  ASSIGN_OR_RETURN(std::optional<PreviousRun> previous, ReadPrevious(paths));
  ASSIGN_OR_RETURN(RunIdentified run, IdentifyRun(paths.folder, previous));
  return TakenFolder{std::move(lock), std::move(previous), std::move(run), {}};
}

// The same with an old run out of the way, of which nothing has to be readable.
absl::StatusOr<TakenFolder> TakeFolderAnew(const JobSpec& job, const RunPaths& paths,
                                           std::ostream& out) {
  ASSIGN_OR_RETURN(RunLock lock, RunLock::Take(paths.folder));
  const auto previous = ReadPrevious(paths);
  ASSIGN_OR_RETURN(const RunIdentified old,
                   IdentifyRun(paths.folder, previous.ok() ? *previous : std::nullopt));
  ASSIGN_OR_RETURN(const std::string aside, MoveAside(job, paths.folder, old.id));
  const bool has_id = old.copied_from.empty();  // a copy names the run that it was made of
  std::vector<MovedRun> moved = {{.id = has_id ? old.id : "", .folder = aside}};
  if (aside.empty()) return TakenFolder{std::move(lock), std::nullopt, {}, std::move(moved)};
  out << "fresh: the old run is now " << aside << "\n";
  ASSIGN_OR_RETURN(RunLock anew, RunLock::Take(paths.folder));
  return TakenFolder{std::move(anew), std::nullopt, {}, std::move(moved)};
}

void PrintUnread(const LinesLeftOut& unread, std::ostream& out) {
  if (unread.count > 0) out << "damaged: " << unread.Text() << "\n";
}

void PrintFindings(const Continuation& going_on, std::ostream& out) {
  for (const std::string& note : going_on.notes) out << "changed: " << note << "\n";
  for (const std::string& each : going_on.damaged) out << "damaged: " << each << "\n";
  for (const std::string& each : going_on.passed_over) out << "left alone: " << each << "\n";
}

absl::Status Keep(const RunIdentified& run, const JobSpec& job, const RunPaths& paths,
                  std::ostream& out) {
  for (const std::string& note : run.notes) out << note << "\n";
  ASSIGN_OR_RETURN(const std::vector<std::string> problems,
                   KeepRunId(paths.folder, CheckpointFolder(job), run));
  for (const std::string& problem : problems) out << "note: " << problem << "\n";
  return absl::OkStatus();
}

absl::StatusOr<PreparedJob> JudgeJob(
    const std::string& path, const JobFileOptions& options,
    const std::function<absl::Status(const JobSpec&)>& check_job,
    const std::function<absl::Status(const JobSpec&, const Plan&)>& check_plan, int* exit_code) {
  PreparedJob prepared;
  absl::StatusOr<JobFile> file = ReadJobFile(path, options);
  if (!file.ok()) {
    *exit_code = FailJobFile(file.status());
    return file.status();
  }
  prepared.file = *std::move(file);
  const JobSpec& job = prepared.file.job;
  absl::Status status = check_job(job);
  if (status.ok()) {
    const std::optional<Layout> fixed = FixedLayout(job);
    absl::StatusOr<Plan> plan =
        fixed ? PlanFor(job, *fixed, Purpose::kRun) : FindPlan(job, Purpose::kRun);
    status = plan.status();
    if (plan.ok()) {
      prepared.plan = *std::move(plan);
      std::string note = prepared.file.SettleInterval(prepared.plan);
      if (!note.empty()) prepared.file.notes.push_back(std::move(note));
    }
    if (status.ok()) status = check_plan(job, prepared.plan);
  }
  if (status.ok() && prepared.file.has_tokens) {
    absl::StatusOr<std::vector<std::string>> data = Fingerprints(job);
    status = data.status();
    if (data.ok()) prepared.data = *std::move(data);
  }
  if (!status.ok()) {
    std::cerr << prepared.file.Locate(status.message()) << "\nweft: nothing was started\n";
    *exit_code = absl::IsFailedPrecondition(status) ? kExitNothingFits : kExitUsage;
    return status;
  }
  prepared.paths = PathsOf(job);
  return prepared;
}

}  // namespace

absl::StatusOr<PreparedJob> PrepareJob(
    const std::string& path, const JobFileOptions& options,
    const std::function<absl::Status(const JobSpec&)>& check_job,
    const std::function<absl::Status(const JobSpec&, const Plan&)>& check_plan, int* exit_code) {
  JobFileOptions judged = options;
  judged.on_tokens = nullptr;
  absl::StatusOr<PreparedJob> prepared = JudgeJob(path, judged, check_job, check_plan, exit_code);
  // Texts are tokenised for a job that nothing else stands against; that may take hours.
  if (!prepared.ok() || prepared->file.has_tokens || !options.on_tokens) return prepared;
  return JudgeJob(path, options, check_job, check_plan, exit_code);
}

absl::StatusOr<Continuation> LookAtRun(const PreparedJob& prepared,
                                       const std::vector<std::string>& accept, std::ostream& out) {
  for (const std::string& note : prepared.file.notes) out << "note: " << note << "\n";
  RETURN_IF_ERROR(CheckIsSeen(prepared.paths));
  ASSIGN_OR_RETURN(const std::optional<PreviousRun> previous, ReadPrevious(prepared.paths));
  LinesLeftOut unread;
  const std::optional<int64_t> saved_step = LastSavedStep(prepared.paths, &unread);
  ASSIGN_OR_RETURN(const Continuation going_on,
                   Continue(Resolve(prepared.file.job, prepared.plan.layout), prepared.data,
                            previous, saved_step, accept, StatedRunId(prepared.paths.folder)));
  PrintUnread(unread, out);
  PrintFindings(going_on, out);
  return going_on;
}

absl::StatusOr<OpenedRun> OpenRun(const PreparedJob& prepared, bool fresh,
                                  const std::vector<std::string>& accept, std::ostream& out) {
  const JobSpec& job = prepared.file.job;
  for (const std::string& note : prepared.file.notes) out << "note: " << note << "\n";
  const RunPaths& paths = prepared.paths;
  ASSIGN_OR_RETURN(TakenFolder taken, fresh ? TakeFolderAnew(job, paths, out) : TakeFolder(paths));
  JobSpec resolved = Resolve(job, prepared.plan.layout);
  // A copy makes its own what is in its own folder, and no more.
  if (!taken.run.copied_from.empty()) RETURN_IF_ERROR(Keep(taken.run, resolved, paths, out));
  LinesLeftOut unread;
  const std::optional<int64_t> saved_step = LastSavedStep(paths, &unread);
  ASSIGN_OR_RETURN(Continuation going_on, Continue(resolved, prepared.data, taken.previous,
                                                   saved_step, accept, taken.run.id));
  // The lock is not taken before: what is another's is not even locked.
  ASSIGN_OR_RETURN(RunLock checkpoints, RunLock::TakeCheckpoints(CheckpointFolder(job)));
  RETURN_IF_ERROR(Keep({.id = going_on.run.id}, resolved, paths, out));
  going_on.moved_aside = std::move(taken.moved_aside);
  PrintUnread(unread, out);
  PrintFindings(going_on, out);
  return OpenedRun{std::move(taken.lock), std::move(checkpoints), std::move(resolved),
                   std::move(going_on)};
}

void WriteResolved(const PreparedJob& prepared, const OpenedRun& run) {
  const RunRecord record{.run_id = run.going_on.run.id,
                         .generation = run.going_on.last_generation,
                         .weft_version = Version(),
                         .planned_bytes = prepared.plan.peak_bytes(),
                         .predicted_step_s = prepared.plan.time.total_s(),
                         .data = prepared.data,
                         .accepted = run.going_on.run.accepted};
  const absl::Status written =
      WriteWhole(prepared.paths.resolved(), ResolvedText(run.resolved, record));
  if (!written.ok()) std::cerr << "weft: warning: " << written.message() << "\n";
}

void AddAcceptOption(CLI::App& verb, std::vector<std::string>* accept) {
  verb.add_option("--accept-changes", *accept,
                  "go on though these keys have changed: --accept-changes optimizer.lr,...")
      ->delimiter(',')
      ->check([](const std::string& key) {
        return IsAcceptable(key)
                   ? std::string()
                   : absl::StrCat(key, " cannot change within a run; use ", AcceptableKeys());
      });
}

}  // namespace weft
