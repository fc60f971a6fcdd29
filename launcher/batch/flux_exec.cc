#include "launcher/batch/flux_exec.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "launcher/hosts/ssh.h"

namespace weft {

std::vector<std::string> FluxExecArgv(const BatchHosts& job, const std::string& host,
                                      const std::vector<std::string>& command) {
  const auto at = std::find(job.hosts.begin(), job.hosts.end(), host) - job.hosts.begin();
  std::vector<std::string> argv = {
      "flux", "exec", absl::StrCat("--rank=", job.flux_ranks.at(static_cast<size_t>(at)))};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

absl::Status FluxExecFailure(const std::string& host, const std::string& program, int exit_code,
                             absl::string_view words) {
  if (exit_code == 0) return absl::OkStatus();
  if (absl::StrContains(words, "No such file or directory")) {
    return absl::InvalidArgumentError(
        absl::StrCat("host ", host, ": ", program,
                     " is not there; install it at the same path on each node, or name its folder "
                     "by cluster.remote_path"));
  }
  if (absl::StrContains(words, "No route to host") || absl::StrContains(words, "Host is down")) {
    return absl::UnavailableError(absl::StrCat("host ", host, ": Flux has lost its broker there"));
  }
  // flux exec's own words come behind those of the agent.
  std::vector<absl::string_view> said;
  for (const absl::string_view line : absl::StrSplit(words, '\n', absl::SkipWhitespace())) {
    if (!absl::StartsWith(line, "flux-exec: ")) said.push_back(line);
  }
  return CommandFailure(host, program, exit_code, absl::StrJoin(said, "\n"));
}

AgentStarter FluxStarter(BatchHosts job) {
  return {
      .name = "flux exec",
      .argv =
          [job = std::move(job)](const ListedHost& host, const std::vector<std::string>& command) {
            return FluxExecArgv(job, host.name, command);
          },
      .failure = FluxExecFailure};
}

}  // namespace weft
