// A run inside a job of PBS, LSF or Flux: its hosts are the job's.
#pragma once
#include <optional>

#include "absl/status/statusor.h"
#include "launcher/batch/batch_hosts.h"

namespace weft {

// Returns those of the job that this process is in; nullopt: it is in none. InvalidArgument, with
// the way round, if its hosts cannot be read.
absl::StatusOr<std::optional<BatchHosts>> BatchHostsHere();

}  // namespace weft
