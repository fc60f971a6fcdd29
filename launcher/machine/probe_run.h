// Runs `weft-worker --probe` on this machine, alone or as a group (under mpirun, or as children
// where the backend needs no MPI), and measures what needs no worker. Every wait is bounded;
// nothing is left behind.
#pragma once
#include <atomic>
#include <string>

#include "absl/status/statusor.h"
#include "plan/spec/cluster.h"

namespace weft {

struct ProbeRun {
  BackendKind backend = BackendKind::kCpu;
  int ranks = 1;  // of --probe links
  int threads = 1;
  double seconds = 15;
  const std::atomic<bool>* stop = nullptr;  // Ctrl-C; may be null
};

// The JSON that the worker printed. InvalidArgument with the worker's own words if the backend is
// unknown or cannot do what is measured, Cancelled if stopped, DeadlineExceeded, else Unavailable.
absl::StatusOr<std::string> ProbeDevices(const ProbeRun& run);
absl::StatusOr<std::string> ProbeRates(const ProbeRun& run);
absl::StatusOr<std::string> ProbeLinks(const ProbeRun& run);

// Bytes per second of writing a new file in `folder` to the disk; 0 if it cannot be written.
double MeasureStorage(const std::string& folder);

}  // namespace weft
