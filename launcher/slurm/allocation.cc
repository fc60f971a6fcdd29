#include "launcher/slurm/allocation.h"

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "launcher/slurm/node_list.h"
#include "plan/errors.h"

namespace weft {

absl::StatusOr<std::optional<SlurmAllocation>> AllocationOf(
    const std::function<const char*(const char*)>& variable) {
  const auto text = [&](const char* name) {
    const char* const value = variable(name);
    return std::string(value != nullptr ? value : "");
  };
  SlurmAllocation allocation{.job_id = text("SLURM_JOB_ID"), .task = {}, .hosts = {}, .cpus = {}};
  const std::string nodes = text("SLURM_JOB_NODELIST");
  const std::string components = text("SLURM_HET_SIZE");
  if (!allocation.job_id.empty() && !components.empty() && components != "1") {
    return absl::InvalidArgumentError(absl::StrCat(
        "SLURM_HET_SIZE: job ", allocation.job_id, " is a heterogeneous one of ", components,
        " components, but weft trains in one alone; ask for all nodes in one component, without "
        "`:` and hetjob, or name the hosts by --hosts"));
  }
  if (allocation.job_id.empty() || nodes.empty()) return std::optional<SlurmAllocation>();
  const std::string array = text("SLURM_ARRAY_JOB_ID"), task = text("SLURM_ARRAY_TASK_ID");
  if (!array.empty() && !task.empty()) allocation.task = absl::StrCat(array, "_", task);
  ASSIGN_OR_RETURN(allocation.hosts, ExpandNodeList(nodes));
  const std::string cpus = text("SLURM_JOB_CPUS_PER_NODE");
  if (!cpus.empty()) {
    ASSIGN_OR_RETURN(allocation.cpus, ExpandCounts(cpus));
    if (allocation.cpus.size() != allocation.hosts.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("SLURM_JOB_CPUS_PER_NODE: ", cpus, " is for ", allocation.cpus.size(),
                       " nodes but SLURM_JOB_NODELIST ", nodes, " has ", allocation.hosts.size()));
    }
  }
  // It is not set in the first run.
  if (!absl::SimpleAtoi(text("SLURM_RESTART_COUNT"), &allocation.restarts)) allocation.restarts = 0;
  allocation.is_batch = text("WEFT_SLURM_BATCH") == allocation.job_id;
  return std::optional<SlurmAllocation>(std::move(allocation));
}

bool IsOfATask(const std::string& name) {
  for (const char* const prefix : {"SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_", "SRUN_"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  return false;
}

}  // namespace weft
