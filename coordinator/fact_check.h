// A peer's word is checked before it becomes a fact: what a rank reports has to be possible for the
// job as it stands, whoever has sent it. Pure.
#pragma once
#include "absl/status/status.h"
#include "coordinator/job_state.h"

namespace weft {

// InvalidArgument, with what is wrong: a job ends at its last step, with a checkpoint of it that
// was committed; checkpoints are of its steps, and their names are names. REQUIRES: the fact is of
// the job's current generation.
absl::Status CheckFact(const Job& job, const Event& fact);

// InvalidArgument: the rank is not among those that were placed on the machine.
absl::Status CheckPlaced(const Job& job, int rank, const std::string& machine);

}  // namespace weft
