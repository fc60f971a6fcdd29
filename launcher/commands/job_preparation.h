// Preparing a job comes before it is handed to a weftd, whoever's that is: the job file is read and
// planned, its run folder is taken, and what it goes on with is found. Speaks to people.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/job_file/job_yaml.h"
#include "launcher/job_file/run_paths.h"
#include "launcher/run/going_on.h"
#include "launcher/run/run_folder.h"
#include "plan/search/plan.h"

namespace weft {

struct PreparedJob {
  JobFile file;
  Plan plan;
  RunPaths paths;
  std::vector<std::string> data;  // fingerprints
};

// Does everything that can go wrong before a run folder is touched; what takes long, texts into
// tokens, after all else (both checks are then asked twice). Where it does not return a job
// it has said why, and *exit_code is what the command ends with.
absl::StatusOr<PreparedJob> PrepareJob(
    const std::string& path, const JobFileOptions& options,
    const std::function<absl::Status(const JobSpec&)>& check_job,
    const std::function<absl::Status(const JobSpec&, const Plan&)>& check_plan, int* exit_code);

struct OpenedRun {
  RunLock lock;
  RunLock checkpoints;
  JobSpec resolved;
  Continuation going_on;
};

// Takes the run's folder and that of its checkpoints, an old run out of the way if `fresh`, and
// says what is not as it was. `accept`: keys whose change is taken.
absl::StatusOr<OpenedRun> OpenRun(const PreparedJob& prepared, bool fresh,
                                  const std::vector<std::string>& accept, std::ostream& out);

// Finds the same without taking or writing anything, in folders that a weftd of another user makes
// and holds. PermissionDenied: what is there cannot be seen.
absl::StatusOr<Continuation> LookAtRun(const PreparedJob& prepared,
                                       const std::vector<std::string>& accept, std::ostream& out);

// Writes resolved.yaml, as weft run leaves it in the run folder: weft eval and the next submission
// read it. What keeps it from that is said as a warning.
void WriteResolved(const PreparedJob& prepared, const OpenedRun& run);

// The option --accept-changes.
void AddAcceptOption(CLI::App& verb, std::vector<std::string>* accept);

}  // namespace weft
