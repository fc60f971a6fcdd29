// One run folder, one run: output_dir/name with its lock, and the resolved.yaml of the run before.
// Where things lie in it is told by run_paths.h.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/job_file/resolved_yaml.h"
#include "launcher/job_file/run_paths.h"
#include "plan/spec/job_spec.h"
#include "process/run_lock.h"
#include "text/json_lines.h"

namespace weft {

// The run that a person means: a run folder, or a job file whose run folder is meant.
// InvalidArgument if there is no run;
// PermissionDenied as CheckIsSeen.
absl::StatusOr<RunPaths> FindRun(const std::string& target);

// PermissionDenied if this user cannot see what is in the run folder, and so whether a run goes on
// there. OK also where there is none.
absl::Status CheckIsSeen(const RunPaths& paths);

// Returns where weftd listens: in the run folder, which nobody else can write.
inline std::string SocketPath(const std::string& run_folder) {
  return run_folder + "/weftd.sock";
}

// Opens a file of lines in a run folder, events.jsonl or metrics.jsonl. A link that another user
// has put there is not followed.
OpenedLines LinesOfRun(const std::string& path);

// InvalidArgument if a weftd that serves jobs holds the run for one of them: that is looked at and
// stopped by its id, `weft VERB job-7`, not through its run folder.
absl::Status CheckIsNoJob(const std::string& run_folder, absl::string_view verb);

// Makes the folder of logs; whoever opens one there says what is wrong with it.
void MakeLogsFolder(const RunPaths& paths);

// Moves an old run aside to `<folder>.old-<n>`; its checkpoints, if they lie elsewhere, into a
// folder `old-<n>` beside them. Never deletes, and leaves alone what is not that run's. `run_id`:
// its id; empty: as its checkpoints say. Returns where the run folder is; empty if there was
// nothing. REQUIRES: its lock is held.
absl::StatusOr<std::string> MoveAside(const JobSpec& job, const std::string& run_folder,
                                      std::string run_id);

// The run whose checkpoints lie there, if they say that they are of `run_folder`, or lie in it.
// Empty if there are none, or if they name no run.
absl::StatusOr<std::string> RunThatSaved(const std::string& checkpoints,
                                         const std::string& run_folder);

// Fingerprints of all data files, "path size:hash" each.
absl::StatusOr<std::vector<std::string>> Fingerprints(const JobSpec& job);

// The run before, if there was one.
struct PreviousRun {
  JobSpec job;
  RunRecord record;
};
// PermissionDenied: resolved.yaml is there and cannot be read. InvalidArgument: it is damaged.
absl::StatusOr<std::optional<PreviousRun>> ReadPrevious(const RunPaths& paths);

// "; the disk of /runs/a is full (0 B free): make room and run the same command again" if so, else
// empty: for what fails where a full disk takes the words away.
std::string FullDiskText(const std::string& folder);

}  // namespace weft
