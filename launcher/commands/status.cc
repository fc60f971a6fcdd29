// weft status: where a run stands, from its coordinator if it runs, else from its files; or a job
// of a weftd that serves jobs.
#include <iostream>
#include <memory>

#include "checkpoint/checkpoint.h"
#include "checkpoint/verify.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/job_changes.h"
#include "launcher/commands/named_job.h"
#include "launcher/commands/service_options.h"
#include "launcher/commands/slurm_verbs.h"
#include "launcher/run/run_folder.h"
#include "launcher/service/job_view.h"
#include "plan/spec/layout_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

void PrintSlurm(const std::string& run_folder) {
  const std::string state = SlurmStateOf(run_folder);
  if (!state.empty()) std::cout << "  slurm       " << state << "\n";
  for (const std::string& line : LeftOutLines(run_folder)) {
    std::cout << "  left out    " << line << "\n";
  }
}

int PrintRunning(const RunPaths& paths, bool json) {
  const auto client = OpenRun(paths.folder);
  if (!client.ok()) return Fail(client.status());
  const absl::StatusOr<v1::Job> job = (*client)->Get("");
  if (!job.ok()) return Fail(job.status());
  if (json) return PrintAnswer(json, *job, "");
  std::cout << paths.folder << "\n"
            << "  phase       " << job->phase();
  if (!job->reason().empty()) std::cout << ": " << job->reason();
  std::cout << "\n  step        " << job->step() << " of " << job->steps() << ", saved "
            << job->saved_step() << "\n  generation  " << job->generation() << ", "
            << job->restarts_left() << " restarts left\n";
  proto::Layout properties;
  *properties.mutable_properties() = job->layout();
  const absl::StatusOr<Layout> layout = FromProto(properties);
  if (layout.ok()) std::cout << "  layout      " << LayoutText(*layout) << "\n";
  PrintSlurm(paths.folder);
  return kExitOk;
}

int Status(const std::string& target, bool json) {
  const absl::StatusOr<RunPaths> paths = FindRun(target);
  if (!paths.ok()) return Fail(paths.status());
  const absl::Status is_no_job = CheckIsNoJob(paths->folder, "status");
  if (!is_no_job.ok()) return Fail(is_no_job);
  if (IsRunning(paths->folder)) return PrintRunning(*paths, json);
  if (json) {
    return Fail(
        absl::InvalidArgumentError("--json: is for a job, as job-17, or a run that runs; "
                                   "nothing runs in " +
                                   paths->folder));
  }
  const auto previous = ReadPrevious(*paths);
  if (!previous.ok()) return Fail(previous.status());
  if (!*previous) {
    std::cout << paths->folder << "\n  never began to train\n";
    PrintSlurm(paths->folder);
    return kExitOk;
  }
  const JobSpec& job = (*previous)->job;
  const std::string folder = CheckpointFolder(job);
  const std::string run_id = (*previous)->record.run_id;
  const auto own = StepsOfRun(folder, run_id);
  if (!own.ok()) return Fail(own.status());
  std::vector<int64_t> steps;
  for (const SavedStep& saved : *own) steps.push_back(saved.step);
  const absl::StatusOr<FoundCheckpoint> found =
      run_id.empty() ? NewestCheckpoint(folder) : FirstThatVerifies(folder, steps);
  if (!found.ok()) return Fail(found.status());
  const int64_t step = found->path.empty() ? 0 : found->manifest.step;
  std::cout << paths->folder << "\n"
            << "  phase       " << (step >= job.training.steps ? "done" : "not running") << "\n"
            << "  step        " << step << " of " << job.training.steps << " saved\n"
            << "  generation  " << (*previous)->record.generation << "\n";
  for (const std::string& refused : found->refused)
    std::cout << "  damaged     " << refused << "\n";
  PrintSlurm(paths->folder);
  return kExitOk;
}

}  // namespace

void AddStatus(CLI::App& app, int* exit_code) {
  struct Arguments {
    ServiceWords words;
    std::string target;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* status = app.add_subcommand("status", "say where a run or a job stands");
  status
      ->add_option("run", arguments->target,
                   "a job of weftd's, as job-17; else a run folder or its job file")
      ->required();
  AddJsonOption(*status, &arguments->json);
  AddServiceOptions(*status, &arguments->words);
  status->callback([arguments, exit_code] {
    const bool is_job = IsJobId(arguments->target);
    *exit_code = is_job ? PrintJob(arguments->words, arguments->target, arguments->json)
                        : Status(arguments->target, arguments->json);
  });
}

}  // namespace weft
