// Leaving the terminal: the caller goes on as a daemon, its output in a file.
#pragma once
#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"

namespace weft {

// Forks twice. In the process that goes on (a session of its own, stdin empty, stdout and stderr
// appended to `output`) returns 0; in the one that was called, the pid of the one that goes on.
// Call it before any thread is started.
absl::StatusOr<pid_t> Detach(const std::string& output);

}  // namespace weft
