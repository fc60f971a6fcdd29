// weft attach: follows a run that goes on elsewhere. A Ctrl-C here only leaves.
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>

#include "launcher/commands/commands.h"
#include "launcher/commands/named_job.h"
#include "launcher/commands/service_options.h"
#include "launcher/run/live_output.h"
#include "launcher/run/progress.h"
#include "launcher/run/run_folder.h"
#include "launcher/run/terminal.h"
#include "process/signals.h"

namespace weft {
namespace {

// A run that was just started needs a moment until its coordinator answers.
constexpr int kAnswerMs = 10000;
constexpr int kPollMs = 50;

// The coordinator may still be starting.
absl::StatusOr<std::unique_ptr<ControlClient>> OpenPatiently(const std::string& run_folder,
                                                             const std::atomic<bool>& left) {
  auto client = OpenRun(run_folder);
  for (int waited = 0; absl::IsUnavailable(client.status()) && !left && waited < kAnswerMs;
       waited += kPollMs) {
    if (!IsRunning(run_folder)) break;
    usleep(kPollMs * 1000);
    client = OpenRun(run_folder);
  }
  return client;
}

int Attach(const std::string& target) {
  const LiveOutput live(std::cout, STDOUT_FILENO);
  const absl::StatusOr<RunPaths> paths = FindRun(target);
  if (!paths.ok()) return Fail(paths.status());
  const absl::Status is_no_job = CheckIsNoJob(paths->folder, "watch");
  if (!is_no_job.ok()) return Fail(is_no_job);
  if (!IsRunning(paths->folder)) {
    return Fail(absl::InvalidArgumentError("nothing runs in " + paths->folder +
                                           "; see weft status, or start it with weft run"));
  }
  std::atomic<bool> left{false};
  std::atomic<ControlClient*> watching{nullptr};
  SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&](int) {
    left = true;
    if (ControlClient* client = watching.load()) client->Leave();
  });
  const auto client = OpenPatiently(paths->folder, left);
  if (left) return kExitOk;
  if (!client.ok()) return Fail(client.status());
  // The coordinator is up before it has the job.
  absl::StatusOr<v1::Job> job = (*client)->Get("");
  for (int waited = 0; !job.ok() && !left && waited < kAnswerMs; waited += kPollMs) {
    if (!IsRunning(paths->folder)) break;
    usleep(kPollMs * 1000);
    job = (*client)->Get("");
  }
  if (left) return kExitOk;
  if (!job.ok()) return Fail(job.status());
  watching = client->get();
  if (left) (*client)->Leave();
  // The plan is of the arena; what is measured is the whole process.
  const auto run = ReadPrevious(*paths);
  const int64_t library_bytes =
      run.ok() && *run ? (*run)->job.cluster.device.library_bytes : int64_t{0};
  const auto write = [](const std::string& text) { std::cout << text << std::flush; };
  Progress progress({.columns = TerminalColumns,
                     .log_freq = run.ok() && *run ? (*run)->job.log_freq : 1,
                     .steps = job->steps(),
                     .planned_bytes = job->planned_bytes() + library_bytes,
                     .write = write});
  progress.Say("attached to " + paths->folder + " (Ctrl-C leaves; the run goes on)");
  int64_t revision = job->revision();
  std::string phase = job->phase();
  const absl::Status status =
      (*client)->Watch(job->job_id(), &revision, [&](const v1::WatchReply& reply) {
        for (const v1::Event& event : reply.events()) {
          if (event.has_phase()) phase = event.phase().phase();
          progress.Take(event);
        }
        return true;
      });
  progress.Finish();
  if (left) {
    std::cout << "left; the run goes on (weft stop " << paths->folder << " ends it)\n";
    return kExitOk;
  }
  if (!status.ok()) return Fail(status);
  std::cout << phase << "\n";
  return ExitCodeOfPhase(phase);
}

}  // namespace

void AddAttach(CLI::App& app, int* exit_code) {
  const auto target = std::make_shared<std::string>();
  CLI::App* attach = app.add_subcommand("attach", "follow a run");
  attach->add_option("run", *target, "a run folder or its job file")->required();
  attach->callback([target, exit_code] { *exit_code = Attach(*target); });
}

}  // namespace weft
