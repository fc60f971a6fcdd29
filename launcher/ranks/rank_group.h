// The processes of a group on one machine, where there is no mpirun (a GPU host needs no MPI):
// started together, each told its rank, ended together with the first that fails.
#pragma once
#include <csignal>
#include <string>
#include <vector>

namespace weft {

// Starts `world_size` processes of `argv` (argv[0]: found in PATH unless it holds a slash) with
// WEFT_RANK, WEFT_LOCAL_RANK and WEFT_WORLD_SIZE set, and waits until all have ended. The first
// that is killed or exits with another code than 0 is named on stdout, "weft-ranks: rank 2 signal
// 9" or "... rank 2 exit 1", and the others are killed at once, as they are when *stop becomes
// nonzero. Each is killed by the kernel if this process dies. Returns 0, the failing process's exit
// code, or 128 + its signal.
int RunRankGroup(int world_size, const std::vector<std::string>& argv,
                 const volatile std::sig_atomic_t* stop);

}  // namespace weft
