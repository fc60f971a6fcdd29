// mpirun starts a daemon of its own, orted, on each other host of a generation, by a command line
// that it makes for a remote shell. Here that line comes over the wire, so it is not believed: what
// is executed is this installation's own orted, and its arguments are built anew from what is known
// of mpirun's. Pure, except that one function looks for the program.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/machine/start.h"

namespace weft {

struct DaemonCommand {
  std::vector<std::string> argv;      // argv[0]: `program`
  std::vector<std::string> left_out;  // settings of the asker that are no daemon's of ours
};

// `args`: what mpirun wants to follow the program's name, unquoted: `-mca NAME VALUE` again and
// again. Settings that name a folder, or depend on the machine, get this host's own values. Others
// that mpirun always gives are taken if they have the right shape. The rest, which the asker's user
// may have set for mpirun, is left out: among it are some that name programs to execute and
// libraries to load. `first_addresses`: those of mpirun's host; the daemon may call no other one
// (empty: they are not known).
// InvalidArgument names what no mpirun of ours would say, or what is missing.
absl::StatusOr<DaemonCommand> DaemonCommandOf(const std::string& program,
                                              const std::vector<std::string>& args,
                                              const std::vector<std::string>& first_addresses,
                                              const GroupOptions& options);

// This installation's orted: it lies beside the mpirun that would be started here. NotFound.
absl::StatusOr<std::string> FindDaemon();

}  // namespace weft
