#include "launcher/commands/named_job.h"

#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "launcher/commands/service_options.h"
#include "launcher/run/run_folder.h"
#include "launcher/service/job_view.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kEndPatienceMs = 10000;  // a run removes what is left of it
constexpr int kEndPollMs = 20;

absl::Status CheckNames(const std::string& name) {
  std::error_code error;
  if (std::filesystem::exists(name, error)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name,
                   " is no job; use job-17, as weft ps lists them, or a run folder or "
                   "its job file"));
}

}  // namespace

ControlClient::Patience RunPatience() {
  return {.attempts = 1, .watch_attempts = 6};
}

absl::StatusOr<std::unique_ptr<ControlClient>> OpenRun(const std::string& run_folder) {
  ASSIGN_OR_RETURN(const ServiceAddress address, RunAddress(SocketPath(run_folder)));
  return ControlClient::Open(address, RunPatience());
}

absl::StatusOr<NamedJob> OpenNamedJob(const ServiceWords& words, const std::string& name,
                                      absl::string_view verb) {
  NamedJob job;
  if (IsJobId(name)) {
    job.job_id = name;
    ASSIGN_OR_RETURN(job.client, OpenService(words));
    return job;
  }
  RETURN_IF_ERROR(CheckNames(name));
  if (!words.coordinator.empty() || !words.tls.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--coordinator and --tls are for jobs, as job-17; ", name, " is a run's"));
  }
  ASSIGN_OR_RETURN(const RunPaths paths, FindRun(name));
  RETURN_IF_ERROR(CheckIsNoJob(paths.folder, verb));
  if (!IsRunning(paths.folder)) {
    return absl::InvalidArgumentError(absl::StrCat("nothing runs in ", paths.folder,
                                                   "; see weft status, or ", paths.folder,
                                                   "/events.jsonl and logs/"));
  }
  job.run_folder = paths.folder;
  ASSIGN_OR_RETURN(job.client, OpenRun(paths.folder));
  ASSIGN_OR_RETURN(const v1::Job now, job.client->Get(""));
  job.job_id = now.job_id();
  return job;
}

absl::Status EndOfStream(const NamedJob& job, const absl::Status& status) {
  if (job.run_folder.empty() || !absl::IsUnavailable(status)) return status;
  for (int waited = 0; waited < kEndPatienceMs; waited += kEndPollMs) {
    if (!IsRunning(job.run_folder)) return absl::OkStatus();
    usleep(kEndPollMs * 1000);
  }
  return absl::UnavailableError(absl::StrCat("the run in ", job.run_folder,
                                             " goes on, but its weftd has gone (", status.message(),
                                             "); ask again"));
}

}  // namespace weft
