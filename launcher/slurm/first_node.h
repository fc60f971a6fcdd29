// The first node of an allocation runs the batch script, and weftd with it. Where Slurm takes that
// one out of an allocation that goes on without nodes (--no-kill), nobody is left to say that the
// job is over: its agents on the other nodes have it queued again.
#pragma once
#include <functional>
#include <optional>
#include <string>

#include "launcher/slurm/slurm_job.h"

namespace weft {

struct BatchJob {
  std::string name;  // as scontrol takes it
  std::string first_node;
};

// The batch job that this process is in; `variable` as AllocationOf's. nullopt: it is in none, or
// in one whose script is not weft's.
std::optional<BatchJob> BatchJobOf(const std::function<const char*(const char*)>& variable);

// Whether Slurm has taken the first node out of the job, which runs on. Pure.
bool HasLostItsFirstNode(const BatchJob& job, const SlurmJob& now);

// Asks Slurm, and has it queue the job again if so. Returns what was done, for a log; empty:
// nothing was to be done, or Slurm does not answer.
std::string RequeueWithoutFirstNode(const BatchJob& job);

}  // namespace weft
