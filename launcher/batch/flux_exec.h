// Agents come up inside a job of Flux' by flux exec, on the broker of each host, so that no ssh is
// needed there. Its command line and its complaints, as pure functions.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/batch/batch_hosts.h"
#include "launcher/hosts/agent_starter.h"

namespace weft {

// REQUIRES: the host is one of `job`, which is of Flux.
std::vector<std::string> FluxExecArgv(const BatchHosts& job, const std::string& host,
                                      const std::vector<std::string>& command);

// Why flux exec, or the agent, ended with `exit_code` after saying `words`.
absl::Status FluxExecFailure(const std::string& host, const std::string& program, int exit_code,
                             absl::string_view words);

AgentStarter FluxStarter(BatchHosts job);

}  // namespace weft
