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
  std::string program;                  // this command as it was typed
  std::string after = {};               // sbatch's --dependency
  std::vector<std::string> tasks = {};  // run folders of an array's; none: it is one job
  std::string folder = {};              // of the array
};

// `prepared`: of an array the task that needs most.
std::string ScriptOf(const SlurmSubmission& submission, const PreparedJob& prepared);

// Prints the script; says in words, and by what it returns, what a submission of these runs would
// be refused for. Nothing is written, and sbatch is asked to judge alone. `fresh`: what is in the
// folders would be moved aside.
int PrintBatchScript(const SlurmSubmission& submission, const PreparedJob& prepared,
                     const std::vector<const PreparedJob*>& runs, bool fresh,
                     const std::vector<std::string>& accept);

// Does what a weftd's submission does to the run folder, but does not keep its lock, which the
// batch host takes; and leaves the job there, for whenever Slurm starts it. *after_step: where the
// run goes on; 0: at its beginning.
absl::Status OpenForSlurm(const PreparedJob& prepared, bool fresh,
                          const std::vector<std::string>& accept, int64_t* after_step);

// InvalidArgument with the key to change if the nodes of the job's partition are not as the plan
// needs them, by what scontrol says of them; where it says nothing, sbatch is left to judge.
absl::Status CheckNodesInSlurm(const PreparedJob& prepared);

// Hands it to Slurm, for a run whose folder was opened.
int SubmitToSlurm(const SlurmSubmission& submission, const PreparedJob& prepared,
                  int64_t after_step);

// InvalidArgument if a job of Slurm's that is not over has the run folder already, or if only this
// host can see that folder.
absl::Status CheckFreeInSlurm(const PreparedJob& prepared);

}  // namespace weft
