// A run that is over, as its folder tells of it: no weftd is left to ask. What weft says of a run
// that goes on comes from its weftd, in the same words (named_job.h).
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/job_file/run_paths.h"
#include "proto/weft/v1/control.pb.h"

namespace weft {

// The run that `name` means, if it is one and nobody holds its folder; nothing for a job of a weftd
// (job-17), and for a run that goes on. Errors as FindRun.
absl::StatusOr<std::optional<RunPaths>> FindEndedRun(const std::string& name);

// Calls `on_event` for each event of events.jsonl, in its order. stderr is told of lines that
// cannot be read. NotFound: there is no such file.
absl::Status ReadEndedEvents(const RunPaths& paths,
                             const std::function<void(const v1::Event&)>& on_event);

// Calls `on_piece` for each piece of the logs that are asked for, as Control.Logs does; false: no
// more is wanted. `request`: generation 0 is the newest that has logs. NotFound: there are none.
absl::Status ReadEndedLogs(const RunPaths& paths, const v1::LogsRequest& request,
                           const std::function<bool(const v1::LogsReply&)>& on_piece);

}  // namespace weft
