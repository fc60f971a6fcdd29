// A job as a person names it: by the id that a weftd that serves jobs has given it, or by the run
// folder or job file of a `weft run` that goes on. Both are spoken to in the same words (weft.v1).
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/service/control_client.h"
#include "launcher/service/service_address.h"

namespace weft {

struct NamedJob {
  std::unique_ptr<ControlClient> client;
  std::string job_id;
  std::string run_folder;  // of a run; empty: it is a job of a weftd that serves jobs
};

// How long the calls to a run's own weftd are made again: not at all, but a watch that breaks comes
// back while weft run starts another one.
ControlClient::Patience RunPatience();

// The weftd of the run in that folder. Unavailable: it does not listen; PermissionDenied: the run
// is another user's.
absl::StatusOr<std::unique_ptr<ControlClient>> OpenRun(const std::string& run_folder);

// Opens what `name` means. `verb`: how the person has called, for hints. InvalidArgument: it names
// nothing, or a run that does not run.
absl::StatusOr<NamedJob> OpenNamedJob(const ServiceWords& words, const std::string& name,
                                      absl::string_view verb);

// Returns why a stream that lasts as long as the job has ended: a run's weftd ends with its run,
// perhaps before it has told the stream's end. OK then; else `status`, or that its weftd has gone.
absl::Status EndOfStream(const NamedJob& job, const absl::Status& status);

}  // namespace weft
