// The batch script of a job: what sbatch is asked for, and how weft runs in the allocation. A
// function of the job, its plan and the site's words alone. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/search/plan.h"
#include "plan/spec/job_spec.h"

namespace weft {

struct BatchWords {
  std::string program = {};     // weft on the nodes, absolute
  std::string run_folder = {};  // absolute
  double save_s = 0;            // what one checkpoint takes
  std::string after = {};       // sbatch's --dependency
  // The run folders of an array's tasks are these; none: it is one job. The array's own folder is
  // the one that they lie in, and `job` and `plan` are those of the task that needs most.
  std::vector<std::string> tasks = {};
};

// The job as it was submitted, complete in itself: the script runs this one, so the job file may
// change while the job waits, and is requeued.
std::string SubmittedJobPath(absl::string_view run_folder);

std::string BatchScript(const JobSpec& job, const Plan& plan, const BatchWords& words);

// The seconds before the end at which Slurm is to say so: two steps and a save twice over, the end
// of all processes, and half a minute; a quarter of the time limit at most. Slurm may be a minute
// early.
int64_t NoticeSeconds(double step_s, double save_s, absl::string_view time_limit);

// Seconds of Slurm's spellings of a time limit (sbatch(1), --time): 0 if it is none.
int64_t LimitSeconds(absl::string_view time);

// MiB of a node that its workers take: what the plan says of the fullest stage, the libraries, on
// CPUs a save's copy, a tenth for the files that are read, and half a GiB for weft itself.
int64_t NodeMebibytes(const JobSpec& job, const Plan& plan);

// The file that the batch script's own words go to; `%j` is the job's id, `%A_%a` that of a task.
inline constexpr char kBatchLog[] = "logs/slurm-%j.log";
inline constexpr char kArrayLog[] = "slurm-%A_%a.log";
// A variable that says that a batch script started this weft: it holds the job's id.
inline constexpr char kBatchVariable[] = "WEFT_SLURM_BATCH";

}  // namespace weft
