// AgentStarter brings up an agent on another host: a program here that runs a command there, passes
// its standard input on to it, and stays until it ends. ssh is one, Slurm's srun another.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/hosts/host_list.h"

namespace weft {

struct AgentStarter {
  std::string name;  // of the program, for messages
  // The command line that runs `command` on the host.
  std::function<std::vector<std::string>(const ListedHost& host,
                                         const std::vector<std::string>& command)>
      argv;
  // Why the program, or the command over there, ended with `exit_code` after saying `words`: with
  // the host's name, what is wrong and the cure. `program` is the command's own. OK: it ended as it
  // should. Unavailable: the host may come back. NotFound: the starter may not use it; a host that
  // was up has been taken away.
  std::function<absl::Status(const std::string& host, const std::string& program, int exit_code,
                             absl::string_view words)>
      failure;
  // It also starts the agent of this host, so that whoever watches over the program sees all.
  bool starts_here = false;
  // False: the program may go on for ever although its agent is gone.
  bool ends_with_agent = true;
};

}  // namespace weft
