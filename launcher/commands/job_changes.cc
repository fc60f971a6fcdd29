// weft checkpoint, pause, resume, resize: what a person asks of a job that a weftd serves; the
// first of a run, too.
#include "launcher/commands/job_changes.h"

#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/commands/commands.h"
#include "launcher/commands/named_job.h"
#include "launcher/commands/service_options.h"
#include "launcher/service/job_view.h"
#include "plan/errors.h"
#include "process/clock.h"

namespace weft {
namespace {

using Ask = std::function<absl::StatusOr<v1::Job>(ControlClient& client)>;

// The job as it is after the call, or as it is.
absl::StatusOr<v1::Job> Answer(const ServiceWords& words, const Ask& ask) {
  ASSIGN_OR_RETURN(const auto client, OpenService(words));
  return ask(*client);
}

int Print(const absl::StatusOr<v1::Job>& job, bool json) {
  return job.ok() ? PrintAnswer(json, *job, JobLine(*job)) : FailCall(job.status());
}

struct ChangeArguments {
  ServiceWords words;
  std::string job;
  std::string nodes;  // of resize
  bool json = false;
};

// A verb that takes a job and no more.
template <typename Request>
void AddChange(CLI::App& app, const char* name, const char* description,
               absl::StatusOr<v1::Job> (ControlClient::*call)(Request), int* exit_code) {
  const auto arguments = std::make_shared<ChangeArguments>();
  CLI::App* verb = app.add_subcommand(name, description);
  AddJobArgument(*verb, &arguments->job)->required();
  AddJsonOption(*verb, &arguments->json);
  AddServiceOptions(*verb, &arguments->words);
  verb->callback([arguments, call, exit_code] {
    Request request;
    request.set_job_id(arguments->job);
    *exit_code = Print(
        Answer(arguments->words, [&](ControlClient& client) { return (client.*call)(request); }),
        arguments->json);
  });
}

absl::StatusOr<v1::Job> Checkpoint(const ChangeArguments& arguments) {
  ASSIGN_OR_RETURN(const NamedJob job, OpenNamedJob(arguments.words, arguments.job, "checkpoint"));
  v1::CheckpointRequest request;
  request.set_job_id(job.job_id);
  return job.client->Checkpoint(request);
}

void AddCheckpoint(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<ChangeArguments>();
  CLI::App* verb =
      app.add_subcommand("checkpoint", "save a job or a run at its next step, and go on");
  AddNamedJobArgument(*verb, &arguments->job)->required();
  AddJsonOption(*verb, &arguments->json);
  AddServiceOptions(*verb, &arguments->words);
  verb->callback(
      [arguments, exit_code] { *exit_code = Print(Checkpoint(*arguments), arguments->json); });
}

// "2:4", or "4" for just so many.
std::optional<std::pair<int, int>> NodesOf(const std::string& text) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  int least = 0;
  int most = 0;
  const bool reads = parts.size() <= 2 && absl::SimpleAtoi(parts.front(), &least) &&
                     absl::SimpleAtoi(parts.back(), &most);
  if (!reads || least < 1 || most < least) return std::nullopt;
  return std::pair(least, most);
}

void AddResize(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<ChangeArguments>();
  CLI::App* resize =
      app.add_subcommand("resize", "give a job another number of hosts: it saves, and goes on");
  AddJobArgument(*resize, &arguments->job)->required();
  resize->add_option("nodes", arguments->nodes, "MIN:MAX, or just so many")
      ->required()
      ->check([](const std::string& text) {
        return NodesOf(text) ? std::string()
                             : absl::StrCat(text, " is no MIN:MAX; use 1 or more for both, as 2:4");
      });
  AddJsonOption(*resize, &arguments->json);
  AddServiceOptions(*resize, &arguments->words);
  resize->callback([arguments, exit_code] {
    v1::ResizeRequest request;
    request.set_job_id(arguments->job);
    const auto nodes = NodesOf(arguments->nodes).value_or(std::pair(0, 0));
    request.set_least_nodes(nodes.first);
    request.set_nodes(nodes.second);
    *exit_code = Print(
        Answer(arguments->words, [&](ControlClient& client) { return client.Resize(request); }),
        arguments->json);
  });
}

}  // namespace

int PrintJob(const ServiceWords& words, const std::string& job_id, bool json) {
  const absl::StatusOr<v1::Job> job =
      Answer(words, [&](ControlClient& client) { return client.Get(job_id); });
  return job.ok() ? PrintAnswer(json, *job, JobSheet(*job, UnixTimeMs())) : FailCall(job.status());
}

int StopJob(const ServiceWords& words, const std::string& job_id, bool now, double deadline_s,
            bool json) {
  v1::StopRequest request;
  request.set_job_id(job_id);
  request.set_level(now ? v1::StopRequest::NOW : v1::StopRequest::SAVE);
  request.set_deadline_s(deadline_s);
  return Print(Answer(words, [&](ControlClient& client) { return client.Stop(request); }), json);
}

void AddJobChanges(CLI::App& app, int* exit_code) {
  AddCheckpoint(app, exit_code);
  AddChange<v1::PauseRequest>(app, "pause", "save a job, and give its hosts back",
                              &ControlClient::Pause, exit_code);
  AddChange<v1::ResumeRequest>(app, "resume", "queue a paused or stopped job again",
                               &ControlClient::Resume, exit_code);
  AddResize(app, exit_code);
}

}  // namespace weft
