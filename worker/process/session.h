// Session: one worker process from its first line to its exit code. Joins the trainer, the backend
// and the link; decides nothing itself.
#pragma once
#include <cstdint>
#include <string>

namespace weft {

struct SessionOptions {
  std::string agent;           // "unix:/path/to/ranks.sock"
  int64_t generation = 0;      // the attempt this worker was started for
  std::string run_folder;      // absolute
  std::string backend_folder;  // empty: beside this executable
};

// Trains until the end, a stop or a fault. Never returns after a fault or a loss of the
// coordinator: peers may be waiting in a collective, so the process leaves without cleaning up.
// Exit codes: 0 finished or stopped, 1 fault, 75 no coordinator any more.
int RunSession(const SessionOptions& options);

// Returns a warning for the log where, once the arena has found room, more of a device's memory is
// in use beside it than the plan leaves for context and libraries: used_bytes is Device::UsedBytes.
// Empty: there is no such excess, or the device's memory is the host's.
std::string LibraryExcess(int64_t used_bytes, int64_t arena_bytes, int64_t planned_bytes);

}  // namespace weft
