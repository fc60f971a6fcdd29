// mpirun believes that this is its remote shell: it is called as `PROGRAM HOST orted ARGUMENTS...`,
// and has to run that command on HOST and stay until it ends. Here the wish goes to this host's
// agent, which passes it on to that of the other host; no shell ever sees it. Standard library
// alone.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct DaemonRequest {
  std::string agent;  // path of the agent's socket for shims
  int64_t generation = 0;
  std::string host;                // by its name in mpirun's file of hosts
  std::vector<std::string> words;  // of the command, quoted for a shell
};

// Tells the agent, and stays until that hangs up or mpirun, its parent, dies. Returns 0 then; 1 if
// the agent cannot be reached, 2 if the command is no daemon's.
int RequestDaemon(const DaemonRequest& request);

// Returns what mpirun wants to follow "orted", unquoted: each word may be in double quotes. Where
// the user's login shell is sh or ksh, "( test ! -r ./.profile || . ./.profile;" comes before the
// program and
// ")" after all: they are dropped. Nothing if that is not the shape of the command. Pure.
std::optional<std::vector<std::string>> DaemonArguments(const std::vector<std::string>& words);

}  // namespace weft
