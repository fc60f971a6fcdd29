// One generation's workers are started as one group: this file makes the command line of mpirun, by
// pure functions, and finds what it takes from this machine.
//
// On one host mpirun starts the ranks itself. On several it starts them through daemons of its own
// (orted, mpi_daemon.h), which the agents of the other hosts start as it asks; there a rank
// inherits what its host's agent has given to the daemon. So mpirun itself exports nothing: each
// agent knows the job's environment, and what differs from host to host is right on each. But what
// another user's job asks for reaches neither mpirun nor a daemon: shims take it from a file of
// their host (process/rank_variables.h) and give it to the ranks.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/machine/child_process.h"
#include "process/rank_place.h"

namespace weft {

struct RanksOfHost {
  std::string host;        // as the coordinator names it
  std::vector<int> ranks;  // ascending; the first has slot 0
};

struct GroupOptions {
  std::string worker;      // path of weft-worker; MPI's ranks find it by its bare name
  std::string run_folder;  // absolute
  std::string run_id;
  std::string temporary_folder;  // of this run on this host, exists
  int64_t generation = 1;
  int world_size = 1;
  int threads = 1;  // per worker
  bool as_root = false;
  std::optional<ProcessUser> user = {};    // as whom they run, where that is not the agent's user
  bool single_copy = false;                // workers may read each other's memory
  std::map<std::string, std::string> env;  // cluster.env
  // Another user has submitted the job: nothing but ranks gets `env`.
  bool is_env_for_ranks_alone = false;
  // The agent tells its processes these of itself; empty where there is no agent.
  std::string host;         // the agent's name
  std::string programs;     // folder of this installation's programs
  std::string shim_socket;  // where shims report
  std::string rank_socket;  // where ranks report
  std::string pages = {};   // folder of their progress pages
  // The ranks lie on these hosts, mpirun's first; empty: all on this host.
  std::vector<RanksOfHost> hosts;
  size_t own_host = 0;  // which of them this one is
  // The only address that MPI listens on here; empty: any.
  std::string address = {};
  std::vector<RankPlace> places = {};  // of the ranks of this host; empty: slots 0, 1, 2... unbound
  std::string network;  // a subnet for MPI's traffic, "10.78.0.0/24"; empty: any but loopback
};

// The ranks of this host, ascending.
std::vector<int> OwnRanks(const GroupOptions& options);

// A worker of the generation: its program and arguments.
std::vector<std::string> WorkerArgv(const GroupOptions& options);

// mpirun with everything it takes to run `command` as each rank, with no ssh, as root or not, with
// more workers than cores, leaving no file outside the temporary folder. On several hosts it reads
// HostFilePath, asks for each daemon by `weft-shim daemon` and finds a bare `command` by each
// host's own PATH.
std::vector<std::string> MpirunArgv(const GroupOptions& options,
                                    const std::vector<std::string>& command);

// How ranks of this host read each other's memory, as Open MPI calls it.
inline const char* SingleCopyWord(const GroupOptions& options) {
  return options.single_copy ? "cma" : "none";
}

// The file that shims read lies in the temporary folder, and holds this.
std::string RankEnvironmentPath(const GroupOptions& options);
std::string RankEnvironmentText(const GroupOptions& options);

// mpirun's file of hosts has a line per rank. The hosts have names there that no resolver is asked
// for and that stay short whatever they are called: a daemon's host is found by that name.
std::string HostFilePath(const GroupOptions& options);
std::string HostFileText(const GroupOptions& options, const std::string& first_host_name);
std::optional<size_t> HostOfNode(const GroupOptions& options, const std::string& node);

// Returns what the workers of this host, and whatever starts them, find in their environment.
std::map<std::string, std::string> GroupEnvironment(const GroupOptions& options);

// A rank that no process manager starts is told this of itself, beside GroupEnvironment.
void AddRankVariables(int rank, int slot, int world_size, std::map<std::string, std::string>* env);

// Says whether a process of this user may read another's memory (Open MPI's single copy, "CMA"):
// not under Yama's restriction nor in a container that filters the call.
bool SingleCopyPermitted();

// The executable of that name beside this one; else the bare name, to be found in PATH.
std::string Beside(const std::string& name);
// The folder of this executable; empty if the kernel does not say.
std::string ProgramFolder();

}  // namespace weft
