#include "launcher/commands/job_preparation.h"

#include <iostream>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/job_file/resolved_yaml.h"
#include "plan/errors.h"
#include "plan/search/search.h"
#include "process/run_files.h"
#include "process/version.h"
#include "text/json_lines.h"

namespace weft {
namespace {

// The run's lock, with an old run out of the way if `fresh`.
absl::StatusOr<RunLock> TakeFolder(const JobSpec& job, const RunPaths& paths, bool fresh,
                                   std::ostream& out) {
  ASSIGN_OR_RETURN(RunLock lock, RunLock::Take(paths.folder));
  if (!fresh) return lock;
  ASSIGN_OR_RETURN(const std::string aside, MoveAside(job, paths.folder));
  if (aside.empty()) return lock;
  out << "fresh: the old run is now " << aside << "\n";
  return RunLock::Take(paths.folder);
}

void PrintUnread(const LinesLeftOut& unread, std::ostream& out) {
  if (unread.count > 0) out << "damaged: " << unread.Text() << "\n";
}

void PrintFindings(const Continuation& going_on, std::ostream& out) {
  for (const std::string& note : going_on.notes) out << "changed: " << note << "\n";
  for (const std::string& each : going_on.damaged) out << "damaged: " << each << "\n";
  for (const std::string& each : going_on.passed_over) out << "left alone: " << each << "\n";
}

}  // namespace

absl::StatusOr<PreparedJob> PrepareJob(
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
  if (status.ok()) {
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

absl::StatusOr<Continuation> LookAtRun(const PreparedJob& prepared,
                                       const std::vector<std::string>& accept, std::ostream& out) {
  for (const std::string& note : prepared.file.notes) out << "note: " << note << "\n";
  RETURN_IF_ERROR(CheckIsSeen(prepared.paths));
  ASSIGN_OR_RETURN(const std::optional<PreviousRun> previous, ReadPrevious(prepared.paths));
  LinesLeftOut unread;
  const std::optional<int64_t> saved_step = LastSavedStep(prepared.paths, &unread);
  ASSIGN_OR_RETURN(const Continuation going_on,
                   Continue(Resolve(prepared.file.job, prepared.plan.layout), prepared.data,
                            previous, saved_step, accept));
  PrintUnread(unread, out);
  PrintFindings(going_on, out);
  return going_on;
}

absl::StatusOr<OpenedRun> OpenRun(const PreparedJob& prepared, bool fresh,
                                  const std::vector<std::string>& accept, std::ostream& out) {
  const JobSpec& job = prepared.file.job;
  for (const std::string& note : prepared.file.notes) out << "note: " << note << "\n";
  ASSIGN_OR_RETURN(RunLock lock, TakeFolder(job, prepared.paths, fresh, out));
  ASSIGN_OR_RETURN(const std::optional<PreviousRun> previous, ReadPrevious(prepared.paths));
  JobSpec resolved = Resolve(job, prepared.plan.layout);
  LinesLeftOut unread;
  const std::optional<int64_t> saved_step = LastSavedStep(prepared.paths, &unread);
  ASSIGN_OR_RETURN(Continuation going_on,
                   Continue(resolved, prepared.data, previous, saved_step, accept));
  // The lock is not taken before: what is another's is not even locked.
  ASSIGN_OR_RETURN(RunLock checkpoints, RunLock::TakeCheckpoints(CheckpointFolder(job)));
  PrintUnread(unread, out);
  PrintFindings(going_on, out);
  return OpenedRun{std::move(lock), std::move(checkpoints), std::move(resolved),
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
