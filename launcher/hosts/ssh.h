// Agents on other hosts are started by the system's ssh, which knows keys, users, jumps and ports
// from ssh_config. Its command line and its complaints, as pure functions: ssh's words become a
// message with the host's name and the cure.
#pragma once
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/hosts/agent_starter.h"
#include "launcher/hosts/host_list.h"

namespace weft {

// `word` as a POSIX shell reads it back as one word.
std::string ShellWord(absl::string_view word);

// ssh with everything it takes to run `command` on the host, in place of the remote shell, with no
// question asked and no terminal. `options` are the words of cluster.ssh_options, which count
// before ssh's own configuration.
std::vector<std::string> SshArgv(const ListedHost& host, absl::string_view options,
                                 const std::vector<std::string>& command);

// Why ssh, or the command over there, ended with `exit_code` after saying `words` (the end of its
// stderr): PermissionDenied, InvalidArgument or Unavailable with the host's name, what is wrong and
// the cure; else Unavailable with the last of the words. `program` is the command's own.
absl::Status SshFailure(const std::string& host, const std::string& program, int exit_code,
                        absl::string_view words);

// Why the agent's command ended with `exit_code`, where it did run or was to; whoever started it.
absl::Status CommandFailure(const std::string& host, const std::string& program, int exit_code,
                            absl::string_view words);

// `options` as above.
AgentStarter SshStarter(std::string options);

}  // namespace weft
