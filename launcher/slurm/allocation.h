// The allocation that this process is in, as the variables say that Slurm sets in a batch script
// and in the shell of salloc. Pure.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

struct SlurmAllocation {
  std::string job_id;
  std::string task = {};  // "12_3", of a task of an array; empty: it is none
  std::vector<std::string> hosts;
  std::vector<int> cpus;  // of each of them
  int restarts = 0;       // how often the job was requeued
  bool is_batch = false;  // there is a batch script that a requeue would run again

  // scontrol names it so: the array's number alone would mean all its tasks.
  const std::string& name() const { return task.empty() ? job_id : task; }
};

// `variable` returns a variable's value; null: it is not set. nullopt: there is no allocation.
// InvalidArgument if what is set cannot be read, or the job is a heterogeneous one.
absl::StatusOr<std::optional<SlurmAllocation>> AllocationOf(
    const std::function<const char*(const char*)>& variable);

// True if Slurm or its PMI sets a variable of that name for a task. What an agent starts must not
// see it: Open MPI would bring up its daemons by srun, and Slurm's rank is not ours.
bool IsOfATask(const std::string& name);

}  // namespace weft
