// mpirun has to be Open MPI 4's before weft may start ranks by it, and to find a loopback interface
// that works. And there is what it must not see: the variables that another mpirun
// has left, which it would take for its own (it would look for a daemon that is none of its).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "launcher/machine/ask_program.h"

namespace weft {

// The variables of `environment` ("NAME=value" each) that an mpirun sets for its children, Open
// MPI's or MPICH's, by name. What a person sets for mpirun (OMPI_MCA_btl and the like) is none of
// them. Pure.
std::vector<std::string> VariablesOfMpirun(const std::vector<std::string>& environment);

// Takes these out of this process's environment, and so out of that of all that it starts.
// REQUIRES: one thread.
void ForgetOuterMpirun();

// How many copies of this process an mpirun has started, which is said before ForgetOuterMpirun;
// 1: one, or none has.
int CopiesStarted();

// Returns what mpirun's --version says of an Open MPI whose command line weft knows: "Open MPI
// 4.1.4". `path`: empty if there is none in PATH. InvalidArgument with the path and what was found.
// Pure.
absl::StatusOr<std::string> JudgeMpirun(const std::string& path,
                                        const absl::StatusOr<ProgramAnswer>& answer);

// JudgeMpirun of the mpirun that an agent here would start.
absl::StatusOr<std::string> FindOpenMpi();

// Returns its path without asking it for its version: an agent reaps all that end beside its ranks,
// so that nobody else in it hears how a program ended. InvalidArgument if there is none.
absl::StatusOr<std::string> LookForMpirun();

// InvalidArgument if this host cannot reach itself at 127.0.0.1, as mpirun and its ranks do.
absl::Status CheckLoopback();

}  // namespace weft
