// Agents come up inside a Slurm allocation by srun, a step for each host, so that one that is lost
// is started again without the others. Its command line and its complaints, as pure functions.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_list.h"

namespace weft {

struct SrunWords {
  std::string job_id;
  std::vector<int> cpus = {};  // of each host of `hosts` in the allocation
  std::vector<std::string> hosts = {};
  std::string container = {};  // cluster.container
};

// srun with all it takes to run `command` once on the host, beside whatever else runs in the
// allocation, with all that the job has there.
std::vector<std::string> SrunArgv(const SrunWords& words, const ListedHost& host,
                                  const std::vector<std::string>& command);

// Why srun, or the agent, ended with `exit_code` after saying `words`.
absl::Status SrunFailure(const std::string& host, const std::string& program, int exit_code,
                         absl::string_view words);

// It starts the agent of this host, too: Slurm tells steps, and not the batch script, of a
// preemption.
AgentStarter SrunStarter(SrunWords words);

}  // namespace weft
