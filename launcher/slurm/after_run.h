// The end of a run inside a Slurm allocation: Slurm is asked what it means with the job, once, and
// one decides who runs it again.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "launcher/slurm/allocation.h"
#include "launcher/slurm/slurm_job.h"

namespace weft {

struct AfterRunAnswer {
  AfterRun after = AfterRun::kLeave;
  std::string why;  // a line for people
};

// Decides by AfterRunOf with Slurm's record and the run folder's, and writes down in the latter how
// often the job has ended idly. Only a batch job is run again.
AfterRunAnswer AskAfterRun(const SlurmAllocation& allocation, const std::string& run_folder,
                           const EndedRun& run);

// The last act of a process inside the allocation, which Slurm ends for it: the job is requeued and
// held, as SpecialExit, until somebody releases it.
absl::Status HoldJob(const std::string& job_id);

}  // namespace weft
