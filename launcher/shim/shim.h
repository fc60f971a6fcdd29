// The shim stands in a worker's place under a process manager whose children ranks are (mpirun's
// orted, slurmstepd): it forks the worker, waits for it and tells this host's agent how it ended,
// which nobody but a parent can know. It starts in a millisecond: nothing but the standard library.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace weft {

struct ShimOptions {
  std::string agent;  // path of the agent's socket for shims
  int64_t generation = 0;
  std::string logs;               // folder that takes the worker's output, rank-<rank>.log
  std::vector<std::string> argv;  // the worker; argv[0]: found in PATH unless it holds a slash
};

// Runs the worker to its end. TERM, INT, USR1 and USR2 are passed on as TERM ("save and stop"); the
// worker is killed when the agent goes, and by the kernel when this process does. Returns the
// worker's exit code or 128 + its signal; 1 if the agent cannot be reached or is another user's, 2
// if the environment names no rank, 127 if the worker cannot be executed. What goes wrong before
// there is a worker is said on stderr.
int RunShim(const ShimOptions& options);

}  // namespace weft
