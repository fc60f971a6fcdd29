// weft watch: what happens to a job, or to all, as it happens. weft events: what has happened to
// one. A Ctrl-C only leaves.
#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <string>

#include "launcher/commands/commands.h"
#include "launcher/commands/job_history.h"
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
  std::string job;  // empty: all
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
absl::Status Follow(ControlClient& client, const WatchArguments& arguments, int64_t* revision,
                    std::string* phase) {
  StepThinner thinner;
  absl::Status status;
  for (int gaps = 0; gaps < kMostGaps; ++gaps) {
    status = client.Watch(arguments.job, revision, [&](const v1::WatchReply& reply) {
      for (const v1::Event& event : reply.events()) {
        if (event.has_phase()) *phase = event.phase().phase();
        if (arguments.json || thinner.Shows(event)) PrintEvent(event, arguments);
      }
      return static_cast<bool>(std::cout);
    });
    if (!absl::IsOutOfRange(status)) return status;
    std::cerr << "weft: some events are no longer kept; goes on with the newest\n";
    ASSIGN_OR_RETURN(*revision, Newest(client));
  }
  return status;
}

absl::Status WatchFromNow(ControlClient& client, const WatchArguments& arguments,
                          std::string* phase) {
  int64_t revision = 0;
  if (arguments.job.empty()) {
    ASSIGN_OR_RETURN(revision, Newest(client));
  } else {
    ASSIGN_OR_RETURN(const v1::Job job, client.Get(arguments.job));
    revision = job.revision();
    *phase = job.phase();
    if (!arguments.json) std::cout << JobLine(job) << std::flush;
    if (IsOver(job.phase())) return absl::OkStatus();
  }
  return Follow(client, arguments, &revision, phase);
}

int Watch(const WatchArguments& arguments) {
  std::atomic<bool> left{false};
  std::atomic<ControlClient*> client{nullptr};
  SignalWatcher signals({SIGINT, SIGTERM, SIGHUP}, [&](int) {
    left = true;
    if (ControlClient* open = client.load()) open->Leave();
  });
  const auto opened = OpenService(arguments.words);
  if (!opened.ok()) return FailCall(opened.status());
  client = opened->get();
  if (left) return kExitOk;
  std::string phase;
  const absl::Status status = WatchFromNow(**opened, arguments, &phase);
  client = nullptr;
  if (left) return kExitOk;
  if (!status.ok()) return FailCall(status);
  return arguments.job.empty() ? kExitOk : ExitCodeOfPhase(phase);
}

absl::Status PrintHistory(const WatchArguments& arguments) {
  ASSIGN_OR_RETURN(const auto client, OpenService(arguments.words));
  return ReadHistory(*client, arguments.job,
                     [&](const v1::Event& event) { PrintEvent(event, arguments); });
}

}  // namespace

void AddWatch(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<WatchArguments>();
  CLI::App* watch = app.add_subcommand("watch", "follow a job of a weftd, or all of them");
  AddJobArgument(*watch, &arguments->job);
  AddJsonOption(*watch, &arguments->json);
  AddServiceOptions(*watch, &arguments->words);
  watch->callback([arguments, exit_code] { *exit_code = Watch(*arguments); });
}

void AddEvents(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<WatchArguments>();
  CLI::App* events = app.add_subcommand("events", "say what has happened to a job of a weftd");
  AddJobArgument(*events, &arguments->job)->required();
  AddJsonOption(*events, &arguments->json);
  AddServiceOptions(*events, &arguments->words);
  events->callback([arguments, exit_code] {
    const absl::Status status = PrintHistory(*arguments);
    *exit_code = status.ok() ? kExitOk : FailCall(status);
  });
}

}  // namespace weft
