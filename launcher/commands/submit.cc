// weft submit: hands a job file to a weftd that serves jobs, to Slurm or Kubernetes, and leaves.
// This checks all that weft run checks before a run: a job that cannot be read, planned or gone
// on with is never queued.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/job_preparation.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/prepare_progress.h"
#include "launcher/commands/service_options.h"
#include "launcher/commands/submit_array.h"
#include "launcher/commands/submit_kubernetes.h"
#include "launcher/commands/submit_slurm.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/machine/machine.h"
#include "launcher/run/submission.h"
#include "launcher/service/job_view.h"
#include "launcher/slurm/array.h"
#include "plan/errors.h"
#include "plan/estimate/goodput.h"
#include "plan/search/describe.h"
#include "plan/search/space.h"
#include "plan/spec/layout_text.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr int64_t kMostPriority = 1000;
constexpr int64_t kMostJobsLookedAt = 100000;

struct SubmitArguments {
  std::string program;
  ServiceWords words;
  std::string path;
  JobFileOptions options;
  std::vector<std::string> accept;
  int priority = 0;
  std::string name;
  std::string run_folder;
  std::vector<std::string> lists;  // --array
  std::vector<std::string> after;
  bool json = false;
  bool dry_run = false;
};

// The run folder is output_dir/name of the job: both are set, so that all that lies in it follows.
// InvalidArgument if the path has no name.
absl::Status SetRunFolder(const std::string& folder, std::vector<std::string>* sets) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  if (error || !path.has_filename()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--run-folder: ", folder, " has no name; use a folder such as runs/a"));
  }
  sets->push_back(absl::StrCat("job.output_dir=", path.parent_path().string()));
  sets->push_back(absl::StrCat("job.name=", path.filename().string()));
  return absl::OkStatus();
}

// An old run is moved aside only where no job of weftd's writes into it.
absl::Status CheckNobodyIsThere(ControlClient& client, const std::string& run_folder) {
  ASSIGN_OR_RETURN(const std::vector<v1::Job> jobs,
                   ListJobs(client, {}, kMostJobsLookedAt, [&](const v1::Job& job) {
                     return !IsOver(job.phase()) && job.run_folder() == run_folder;
                   }));
  if (jobs.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--fresh: ", jobs[0].job_id(), " is ",
                                                 jobs[0].phase(), " in ", run_folder,
                                                 "; end it first: weft stop ", jobs[0].job_id()));
}

v1::SubmitRequest RequestOf(const SubmitArguments& arguments, const PreparedJob& prepared,
                            const Continuation& going_on) {
  v1::SubmitRequest request;
  *request.mutable_submission() = SubmissionOf(prepared.file.job, prepared.paths.folder,
                                               prepared.plan.layout, going_on, prepared.data);
  request.set_name(arguments.name.empty() ? prepared.file.job.name : arguments.name);
  request.set_priority(arguments.priority);
  std::error_code error;
  request.set_file(std::filesystem::absolute(arguments.path, error).string());
  for (const std::string& set : arguments.options.sets) request.add_overrides(set);
  return request;
}

// A weftd that is named is asked first: allocations are its business.
bool IsForSlurm(const SubmitArguments& arguments, const PreparedJob& prepared) {
  return prepared.file.job.scheduler.kind == Scheduler::kSlurm && !NamesAWeftd(arguments.words);
}

// For them set job.name, which their objects are called by.
absl::Status CheckOfAWeftd(const SubmitArguments& arguments) {
  if (!arguments.json && arguments.priority == 0 && arguments.name.empty()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      "--json, --priority and --name are of a weftd that serves jobs; for Slurm and Kubernetes set "
      "job.name, and cluster.sbatch_options for what sbatch is told");
}

absl::Status OfSlurm() {
  return absl::InvalidArgumentError(
      "--array and --after are of Slurm: set cluster.scheduler to slurm, or submit each run alone");
}

// A file that cannot be read is no job of Kubernetes': the ordinary way says all that is wrong.
bool IsForKubernetes(const SubmitArguments& arguments) {
  if (NamesAWeftd(arguments.words)) return false;
  JobFileOptions options = arguments.options;
  options.check_files = false;
  const absl::StatusOr<JobFile> file = ReadJobFile(arguments.path, options);
  return file.ok() && file->job.scheduler.kind == Scheduler::kKubernetes;
}

int SubmitPods(const SubmitArguments& arguments) {
  const absl::Status words = CheckOfAWeftd(arguments);
  if (!words.ok()) return Fail(words);
  if (!arguments.lists.empty() || !arguments.after.empty()) return Fail(OfSlurm());
  if (!arguments.accept.empty()) {
    return Fail(absl::InvalidArgumentError(
        "--accept-changes: pods that are replaced would take them again; run it once by hand in a "
        "pod, or give the run another name"));
  }
  return SubmitToKubernetes(arguments.path, arguments.options, arguments.dry_run);
}

int SubmitBatch(const SubmitArguments& arguments, const PreparedJob& prepared) {
  const absl::Status words = CheckOfAWeftd(arguments);
  if (!words.ok()) return Fail(words);
  const absl::StatusOr<std::string> after =
      AfterText(arguments.after, prepared.file.job.scheduler.dependency);
  if (!after.ok()) return Fail(after.status());
  const SlurmSubmission submission{.program = arguments.program, .after = *after};
  if (!arguments.lists.empty()) {
    return SubmitArray({.submission = submission,
                        .path = arguments.path,
                        .options = arguments.options,
                        .lists = arguments.lists,
                        .accept = arguments.accept,
                        .dry_run = arguments.dry_run},
                       prepared);
  }
  if (arguments.dry_run) {
    return PrintBatchScript(submission, prepared, {&prepared}, arguments.options.fresh,
                            arguments.accept);
  }
  const absl::Status free = CheckFreeInSlurm(prepared);
  if (!free.ok()) return Fail(free);
  const absl::Status nodes = CheckNodesInSlurm(prepared);
  if (!nodes.ok()) return Fail(nodes);
  int64_t after_step = 0;
  const absl::Status opened =
      OpenForSlurm(prepared, arguments.options.fresh, arguments.accept, &after_step);
  if (!opened.ok()) return Fail(opened);
  return SubmitToSlurm(submission, prepared, after_step);
}

// weftd takes the folders as soon as it places the job, and writes the resolved.yaml of each
// generation.
absl::StatusOr<Continuation> OpenOwnRun(const SubmitArguments& arguments,
                                        const PreparedJob& prepared, std::ostream& out) {
  ASSIGN_OR_RETURN(const OpenedRun run,
                   OpenRun(prepared, arguments.options.fresh, arguments.accept, out));
  std::string note;
  RETURN_IF_ERROR(CheckRoom(prepared.file.job, run.going_on.run,
                            CheckpointBytes(QuestionOf(prepared.file.job)), &note));
  if (!note.empty()) std::cerr << "note: " << note << "\n";
  WriteResolved(prepared, run);
  return run.going_on;
}

// A weftd of another user makes the folders, as its own: this user may only read them.
absl::StatusOr<Continuation> LookAtOthersRun(const SubmitArguments& arguments,
                                             const PreparedJob& prepared, std::ostream& out) {
  if (arguments.options.fresh) {
    return absl::InvalidArgumentError(
        absl::StrCat("--fresh: ", prepared.paths.folder,
                     " is made by the user as whom weftd runs, and cannot be moved aside by "
                     "another; name another one by --run-folder"));
  }
  return LookAtRun(prepared, arguments.accept, out);
}

int Submit(SubmitArguments arguments) {
  if (!arguments.run_folder.empty()) {
    const absl::Status set = SetRunFolder(arguments.run_folder, &arguments.options.sets);
    if (!set.ok()) return Fail(set);
  }
  if (IsForKubernetes(arguments)) return SubmitPods(arguments);
  // A script that is only printed needs no tokens; what an array's runs have in common is none.
  if (arguments.dry_run) arguments.options.on_tokens = nullptr;
  JobFileOptions options = arguments.options;
  if (!arguments.lists.empty()) options.on_tokens = nullptr;
  int exit_code = kExitOk;
  const absl::StatusOr<PreparedJob> prepared = PrepareJob(
      arguments.path, options, [](const JobSpec&) { return absl::OkStatus(); },
      [](const JobSpec&, const Plan&) { return absl::OkStatus(); }, &exit_code);
  if (!prepared.ok()) return exit_code;
  if (IsForSlurm(arguments, *prepared)) return SubmitBatch(arguments, *prepared);
  if (!arguments.lists.empty() || !arguments.after.empty()) return Fail(OfSlurm());
  if (arguments.dry_run) {
    return Fail(absl::InvalidArgumentError(
        "--dry-run: prints what a scheduler is given, but cluster.scheduler is none; set it to "
        "slurm or kubernetes"));
  }
  const auto client = OpenService(arguments.words);
  if (!client.ok()) return FailCall(client.status());
  if (arguments.options.fresh) {
    const absl::Status free = CheckNobodyIsThere(**client, prepared->paths.folder);
    if (!free.ok()) return FailCall(free);
  }
  std::ostream& out = arguments.json ? std::cerr : std::cout;
  const std::optional<uid_t> other = OtherUserOfService(arguments.words);
  const absl::StatusOr<Continuation> going_on =
      other ? LookAtOthersRun(arguments, *prepared, out) : OpenOwnRun(arguments, *prepared, out);
  if (!going_on.ok()) return Fail(going_on.status());
  const absl::StatusOr<v1::SubmitReply> reply =
      (*client)->Submit(RequestOf(arguments, *prepared, *going_on));
  if (!reply.ok()) return FailCall(reply.status());
  const int64_t after_step = going_on->after_step;
  return PrintAnswer(arguments.json, *reply,
                     absl::StrCat(reply->job_id(), ": ", LayoutText(prepared->plan.layout), ", ",
                                  BytesText(prepared->plan.peak_bytes()), " a worker\n",
                                  after_step > 0 ? "resume" : "run", ": ", prepared->paths.folder,
                                  after_step > 0 ? absl::StrCat(" from step ", after_step) : "",
                                  "\n  ", arguments.program, " watch ", reply->job_id(), "\n"));
}

}  // namespace

void AddSubmit(CLI::App& app, const std::string& program, int* exit_code) {
  const auto arguments = std::make_shared<SubmitArguments>();
  arguments->options.to_run = true;
  arguments->options.on_tokens = ShowPrepareProgress();
  arguments->options.token_threads = UsableCores();
  arguments->program = program;
  CLI::App* submit = app.add_subcommand(
      "submit", "queue a job file: at a weftd that serves jobs, at Slurm or at Kubernetes");
  submit->add_option("job", arguments->path, "the job file, or a run's resolved.yaml")->required();
  submit->add_option("--set", arguments->options.sets, "replace a key: --set training.steps=100")
      ->allow_extra_args(false);
  submit
      ->add_option("--priority", arguments->priority,
                   "a higher one goes first: -1000 to 1000; default: 0")
      ->check(WholeNumber(-kMostPriority, kMostPriority));
  submit->add_option("--name", arguments->name, "for people; default: the job file's");
  submit->add_option("--run-folder", arguments->run_folder,
                     "in place of job.output_dir/job.name, as the hosts see it");
  submit
      ->add_option(
          "--array", arguments->lists,
          "in Slurm: a run for each value, KEY=a,b,c; of several lists for each combination")
      ->allow_extra_args(false);
  submit
      ->add_option("--after", arguments->after,
                   "in Slurm: once that job has ended well: 12, or 12_3; may come several times")
      ->allow_extra_args(false);
  submit->add_flag("--fresh", arguments->options.fresh, "move an old run aside and start anew");
  submit->add_flag("--dry-run", arguments->dry_run,
                   "print Slurm's batch script, or Kubernetes' manifest, and do nothing");
  AddAcceptOption(*submit, &arguments->accept);
  AddJsonOption(*submit, &arguments->json);
  AddServiceOptions(*submit, &arguments->words);
  submit->callback([arguments, exit_code] { *exit_code = Submit(*arguments); });
}

}  // namespace weft
