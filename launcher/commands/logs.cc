// weft logs: what the ranks of a job or a run have written, as weftd's host sees it.
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/ended_run.h"
#include "launcher/commands/kubernetes_verbs.h"
#include "launcher/commands/named_job.h"
#include "launcher/commands/option_checks.h"
#include "launcher/commands/service_options.h"
#include "launcher/service/job_view.h"
#include "launcher/service/message_json.h"
#include "process/signals.h"

namespace weft {
namespace {

struct LogsArguments {
  ServiceWords words;
  std::string job;
  bool follow = false;
  std::vector<int> ranks;
  int64_t tail = 0;
  int64_t generation = 0;
  std::string since;
  bool json = false;
};

// "10m": so long ago; or a time, "2026-11-24T20:00:00Z".
std::optional<int64_t> SinceUnixMs(const std::string& text, absl::Time now) {
  absl::Duration ago;
  if (absl::ParseDuration(text, &ago) && ago >= absl::ZeroDuration()) {
    return absl::ToUnixMillis(now - ago);
  }
  absl::Time time;
  std::string error;
  if (absl::ParseTime(absl::RFC3339_full, text, &time, &error)) return absl::ToUnixMillis(time);
  return std::nullopt;
}

v1::LogsRequest RequestOf(const LogsArguments& arguments, const std::string& job_id) {
  v1::LogsRequest request;
  request.set_job_id(job_id);
  for (const int rank : arguments.ranks) request.add_ranks(rank);
  request.set_generation(arguments.generation);
  request.set_tail_lines(arguments.tail);
  request.set_follow(arguments.follow);
  if (!arguments.since.empty()) {
    request.set_since_unix_ms(SinceUnixMs(arguments.since, absl::Now()).value_or(0));
  }
  return request;
}

// Only weft's own words are in a pod's log.
int LogsOfPods(const JobSpec& job, const LogsArguments& arguments) {
  const char* const option = arguments.json             ? "--json"
                             : !arguments.ranks.empty() ? "--rank"
                             : arguments.generation > 0 ? "--generation"
                                                        : nullptr;
  if (option == nullptr) {
    return PrintPodLogs(job, arguments.follow, arguments.tail, arguments.since);
  }
  return Fail(absl::InvalidArgumentError(
      absl::StrCat(option,
                   ": is for jobs of a weftd, as job-17; what ranks write is in logs/ of "
                   "the run folder, on the pods' volume")));
}

void Print(const v1::LogsReply& piece, const LogsArguments& arguments) {
  std::cout << (arguments.json ? absl::StrCat(MessageJson(piece), "\n")
                               : LogText(piece, arguments.ranks.size() != 1))
            << std::flush;
}

int LogsOfEndedRun(const RunPaths& paths, const LogsArguments& arguments) {
  const absl::Status status =
      ReadEndedLogs(paths, RequestOf(arguments, ""), [&](const v1::LogsReply& piece) {
        Print(piece, arguments);
        return static_cast<bool>(std::cout);
      });
  return status.ok() ? kExitOk : Fail(status);
}

int Logs(const LogsArguments& arguments) {
  if (!IsJobId(arguments.job)) {
    const absl::StatusOr<std::optional<JobSpec>> job = KubernetesJobOf(arguments.job);
    if (!job.ok()) return Fail(job.status());
    if (*job) return LogsOfPods(**job, arguments);
  }
  const absl::StatusOr<std::optional<RunPaths>> ended = FindEndedRun(arguments.job);
  if (!ended.ok()) return Fail(ended.status());
  if (*ended) return LogsOfEndedRun(**ended, arguments);
  std::atomic<bool> left{false};
  std::atomic<ControlClient*> client{nullptr};
  SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&](int) {
    left = true;
    if (ControlClient* open = client.load()) open->Leave();
  });
  const absl::StatusOr<NamedJob> job = OpenNamedJob(arguments.words, arguments.job, "logs");
  if (!job.ok()) return FailCall(job.status());
  client = job->client.get();
  if (left) return kExitOk;
  absl::Status status =
      job->client->Logs(RequestOf(arguments, job->job_id), [&](const v1::LogsReply& piece) {
        Print(piece, arguments);
        if (!std::cout) job->client->Leave();
      });
  client = nullptr;
  if (arguments.follow) status = EndOfStream(*job, status);
  if (left || (absl::IsCancelled(status) && !std::cout)) return kExitOk;
  return status.ok() ? kExitOk : FailCall(status);
}

}  // namespace

void AddLogs(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<LogsArguments>();
  CLI::App* logs = app.add_subcommand("logs", "print what a job or a run has written");
  logs->add_option("job", arguments->job,
                   "a job of weftd's, as weft ps lists them: job-17; else a run folder or its job "
                   "file; or the file of a job in Kubernetes")
      ->required();
  logs->add_flag("-f,--follow", arguments->follow, "go on until the job is over");
  logs->add_option("--rank", arguments->ranks, "only this rank's; may be given again")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(WholeNumber(0, 10000000));
  logs->add_option("--tail", arguments->tail, "only the last lines of each rank")
      ->check(WholeNumber(1));
  logs->add_option("--since", arguments->since,
                   "only logs that were written to since then: 10m, or 2026-11-24T20:00:00Z")
      ->check([](const std::string& text) {
        return SinceUnixMs(text, absl::Now())
                   ? std::string()
                   : absl::StrCat(text, " is no time; use 10m, 2h or 2026-11-24T20:00:00Z");
      });
  logs->add_option("--generation", arguments->generation, "instead of the newest")
      ->check(WholeNumber(1));
  AddJsonOption(*logs, &arguments->json);
  AddServiceOptions(*logs, &arguments->words);
  logs->callback([arguments, exit_code] { *exit_code = Logs(*arguments); });
}

}  // namespace weft
