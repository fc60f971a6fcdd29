// Slurm is spoken to by its own programs: sbatch, srun, scontrol, scancel. Each call has a
// deadline: a controller that is down keeps them waiting for minutes.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/machine/ask_program.h"
#include "launcher/slurm/slurm_job.h"

namespace weft {

inline constexpr int kSlurmAnswerMs = 30000;

using SlurmAnswer = ProgramAnswer;

// Runs the program with `input` as its standard input, whatever it answers. NotFound, with the
// cure, if it is not in PATH; Unavailable if it has not ended after `timeout_ms`.
absl::StatusOr<SlurmAnswer> AskSlurm(const std::vector<std::string>& argv,
                                     const std::string& input = "",
                                     int timeout_ms = kSlurmAnswerMs);

// Slurm's record of the job. NotFound if it knows it no more; else as AskSlurm.
absl::StatusOr<SlurmJob> AskForJob(const std::string& id, int timeout_ms = kSlurmAnswerMs);

}  // namespace weft
