// weft submit, where cluster.scheduler is slurm: the batch script is written and given to sbatch.
// Speaks to people.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/commands/job_preparation.h"

namespace weft {

struct SlurmSubmission {
  std::string program;  // this command as it was typed
  std::string path;     // of the job file
  std::vector<std::string> sets;
};

// Prints the script.
int PrintBatchScript(const SlurmSubmission& submission, const PreparedJob& prepared);

// Hands it to Slurm, for a run whose folder was opened.
int SubmitToSlurm(const SlurmSubmission& submission, const PreparedJob& prepared,
                  int64_t after_step);

// InvalidArgument if a job of Slurm's that is not over has the run folder already, or if only this
// host can see that folder.
absl::Status CheckFreeInSlurm(const PreparedJob& prepared);

}  // namespace weft
