// weft stop: asks a run to save and end, or to end at once, and waits until it has; asks the same
// of a job of a weftd that serves jobs, and does not wait.
#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>

#include "launcher/commands/commands.h"
#include "launcher/commands/job_changes.h"
#include "launcher/commands/kubernetes_verbs.h"
#include "launcher/commands/named_job.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/service_options.h"
#include "launcher/commands/slurm_verbs.h"
#include "launcher/run/run_folder.h"
#include "launcher/service/job_view.h"

namespace weft {
namespace {

constexpr int kStopPatienceMs = 60000;
constexpr int kStopPollMs = 50;
constexpr double kMostDeadlineS = 1000000;

int Stop(const std::string& target, bool now) {
  const absl::StatusOr<std::optional<JobSpec>> in_pods = KubernetesJobOf(target);
  if (!in_pods.ok()) return Fail(in_pods.status());
  if (*in_pods) return StopKubernetesJob(**in_pods, now);
  const absl::StatusOr<RunPaths> paths = FindRun(target);
  if (!paths.ok()) return Fail(paths.status());
  const absl::Status is_no_job = CheckIsNoJob(paths->folder, "stop");
  if (!is_no_job.ok()) return Fail(is_no_job);
  if (const std::optional<SlurmJob> job = SlurmJobOf(paths->folder)) {
    return StopSlurmJob(*job, now);
  }
  if (!IsRunning(paths->folder)) {
    std::cout << "nothing runs in " << paths->folder << "\n";
    return kExitOk;
  }
  auto client = OpenRun(paths->folder);
  v1::StopRequest request;
  request.set_level(now ? v1::StopRequest::NOW : v1::StopRequest::SAVE);
  // It may end between our look and our call: then there is nothing left to ask for.
  absl::Status asked = client.ok() ? (*client)->Stop(request).status() : client.status();
  if (absl::IsFailedPrecondition(asked)) asked = absl::OkStatus();  // its end is under way
  if (!asked.ok() && IsRunning(paths->folder)) return Fail(asked);
  if (client.ok()) client->reset();  // the coordinator waits for open connections before it ends
  for (int waited = 0; waited < kStopPatienceMs; waited += kStopPollMs) {
    if (!IsRunning(paths->folder)) {
      std::cout << (now ? "stopped\n" : "stopped and saved; weft run resumes\n");
      return kExitOk;
    }
    usleep(kStopPollMs * 1000);
  }
  return Fail(absl::UnavailableError("asked to stop, but it still runs after 60 s; weft attach " +
                                     paths->folder + " shows why, weft stop --now ends it"));
}

}  // namespace

void AddStop(CLI::App& app, int* exit_code) {
  struct Arguments {
    ServiceWords words;
    std::string target;
    bool now = false;
    double deadline_s = 0;
    bool json = false;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* stop = app.add_subcommand("stop", "save and end a run or a job");
  stop->add_option("run", arguments->target,
                   "a job of weftd's, as job-17; else a run folder or its job file")
      ->required();
  CLI::Option* now = stop->add_flag("--now", arguments->now, "at once, without saving");
  stop->add_option("--deadline", arguments->deadline_s,
                   "of a job: seconds after which it ends without saving; default: none")
      ->check(NumberAbove(0, kMostDeadlineS))
      ->excludes(now);
  AddJsonOption(*stop, &arguments->json);
  AddServiceOptions(*stop, &arguments->words);
  stop->callback([arguments, exit_code] {
    const bool is_job = IsJobId(arguments->target);
    if (!is_job && (arguments->json || arguments->deadline_s > 0)) {
      throw CLI::ValidationError(arguments->json ? "--json" : "--deadline",
                                 "is for jobs, as job-17");
    }
    *exit_code = is_job ? StopJob(arguments->words, arguments->target, arguments->now,
                                  arguments->deadline_s, arguments->json)
                        : Stop(arguments->target, arguments->now);
  });
}

}  // namespace weft
