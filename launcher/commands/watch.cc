// weft watch: what happens to a job, or to all, as it happens. weft events: what has happened to
// one. A Ctrl-C only leaves.
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "launcher/commands/commands.h"
#include "launcher/commands/ended_run.h"
#include "launcher/commands/job_history.h"
#include "launcher/commands/named_job.h"
#include "launcher/commands/service_options.h"
#include "launcher/service/job_view.h"
#include "launcher/service/message_json.h"
#include "plan/errors.h"
#include "process/signals.h"

namespace weft {
namespace {

constexpr int kMostGaps = 100;  // who falls behind more often cannot keep up at all

struct WatchArguments {
  ServiceWords words;
  std::string job;  // as the person names it; empty: all
  bool json = false;
};

void PrintEvent(const v1::Event& event, const WatchArguments& arguments) {
  if (arguments.json) {
    std::cout << MessageJson(event) << std::endl;
  } else {
    std::cout << EventText(event, arguments.job.empty()) << std::flush;
  }
}

// Where to go on when what was asked for is no longer kept: nothing older than what List says.
absl::StatusOr<int64_t> Newest(ControlClient& client) {
  v1::ListRequest request;
  request.set_page_size(1);
  ASSIGN_OR_RETURN(const v1::ListReply reply, client.List(request));
  return reply.revision();
}

// Follows from *revision on, with a word where weftd no longer keeps what lies between.
absl::Status Follow(const NamedJob& job, const WatchArguments& arguments, int64_t* revision,
                    std::string* phase) {
  StepThinner thinner;
  absl::Status status;
  for (int gaps = 0; gaps < kMostGaps; ++gaps) {
    status = job.client->Watch(job.job_id, revision, [&](const v1::WatchReply& reply) {
      for (const v1::Event& event : reply.events()) {
        if (event.has_phase()) *phase = event.phase().phase();
        if (arguments.json || thinner.Shows(event)) PrintEvent(event, arguments);
      }
      return static_cast<bool>(std::cout);
    });
    if (!absl::IsOutOfRange(status)) return status;
    std::cerr << "weft: some events are no longer kept; goes on with the newest\n";
    ASSIGN_OR_RETURN(*revision, Newest(*job.client));
  }
  return status;
}

absl::Status WatchFromNow(const NamedJob& job, const WatchArguments& arguments,
                          std::string* phase) {
  int64_t revision = 0;
  if (arguments.job.empty()) {
    ASSIGN_OR_RETURN(revision, Newest(*job.client));
  } else {
    ASSIGN_OR_RETURN(const v1::Job now, job.client->Get(job.job_id));
    revision = now.revision();
    *phase = now.phase();
    if (!arguments.json) std::cout << JobLine(now) << std::flush;
    if (IsOver(now.phase())) return absl::OkStatus();
  }
  return Follow(job, arguments, &revision, phase);
}

// Without a name it is all jobs of a weftd that serves jobs.
absl::StatusOr<NamedJob> OpenWatched(const WatchArguments& arguments) {
  if (!arguments.job.empty()) return OpenNamedJob(arguments.words, arguments.job, "watch");
  NamedJob all;
  ASSIGN_OR_RETURN(all.client, OpenService(arguments.words));
  return all;
}

int Watch(const WatchArguments& arguments) {
  std::atomic<bool> left{false};
  std::atomic<ControlClient*> client{nullptr};
  SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&](int) {
    left = true;
    if (ControlClient* open = client.load()) open->Leave();
  });
  const absl::StatusOr<NamedJob> job = OpenWatched(arguments);
  if (!job.ok()) return FailCall(job.status());
  client = job->client.get();
  if (left) return kExitOk;
  std::string phase;
  const absl::Status status = WatchFromNow(*job, arguments, &phase);
  client = nullptr;
  if (left) return kExitOk;
  if (!status.ok()) return FailCall(status);
  return arguments.job.empty() ? kExitOk : ExitCodeOfPhase(phase);
}

absl::Status PrintHistory(const WatchArguments& arguments) {
  const auto print = [&](const v1::Event& event) { PrintEvent(event, arguments); };
  ASSIGN_OR_RETURN(const std::optional<RunPaths> ended, FindEndedRun(arguments.job));
  if (ended) return ReadEndedEvents(*ended, print);
  ASSIGN_OR_RETURN(const NamedJob job, OpenNamedJob(arguments.words, arguments.job, "events"));
  return ReadHistory(*job.client, job.job_id, print);
}

}  // namespace

void AddWatch(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<WatchArguments>();
  CLI::App* watch = app.add_subcommand("watch", "follow a job or a run, or all jobs of a weftd");
  AddNamedJobArgument(*watch, &arguments->job);
  AddJsonOption(*watch, &arguments->json);
  AddServiceOptions(*watch, &arguments->words);
  watch->callback([arguments, exit_code] { *exit_code = Watch(*arguments); });
}

void AddEvents(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<WatchArguments>();
  CLI::App* events = app.add_subcommand("events", "say what has happened to a job or a run");
  AddNamedJobArgument(*events, &arguments->job)->required();
  AddJsonOption(*events, &arguments->json);
  AddServiceOptions(*events, &arguments->words);
  events->callback([arguments, exit_code] {
    const absl::Status status = PrintHistory(*arguments);
    *exit_code = status.ok() ? kExitOk : FailCall(status);
  });
}

}  // namespace weft
