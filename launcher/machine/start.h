// One generation's workers are started as one group: this file makes the command line of mpirun, by
// pure functions, and finds what it takes from this machine.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "launcher/machine/child_process.h"

namespace weft {

struct GroupOptions {
  std::string worker;      // path of weft-worker
  std::string agent;       // "unix:/path/ranks.sock"
  std::string run_folder;  // absolute
  std::string run_id;
  std::string temporary_folder;  // of this run, exists
  int64_t generation = 1;
  int world_size = 1;
  int threads = 1;  // per worker
  bool as_root = false;
  bool single_copy = false;                // workers may read each other's memory
  std::map<std::string, std::string> env;  // cluster.env
};

// A worker of the generation: its program and arguments.
std::vector<std::string> WorkerArgv(const GroupOptions& options);

// mpirun with everything it takes to run `command` as each rank on one machine, with no ssh, as
// root or not, with more workers than cores, leaving no file outside the temporary folder.
std::vector<std::string> MpirunArgv(const GroupOptions& options,
                                    const std::vector<std::string>& command);

// Returns what the workers find in their environment, by name; MpirunArgv passes each by `-x NAME`.
std::map<std::string, std::string> GroupEnvironment(const GroupOptions& options);

// A rank that no process manager starts is told this of itself, beside GroupEnvironment.
void AddRankVariables(int rank, int world_size, std::map<std::string, std::string>* env);

// Says whether a process of this user may read another's memory (Open MPI's single copy, "CMA"):
// not under Yama's restriction nor in a container that filters the call.
bool SingleCopyPermitted();

// The executable of that name beside this one; else the bare name, to be found in PATH.
std::string Beside(const std::string& name);

}  // namespace weft
