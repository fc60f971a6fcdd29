// The first part of control_bench: so many mutations under way at all times, each answered once it
// is durable; and beside them what one wait for the disk costs there, which bounds them.
#pragma once
#include "absl/status/status.h"
#include "bench/control_client.h"

namespace weft {

// Prints rate, p50 and p99. Each caller submits a job that no host can take yet, pauses it, resumes
// it and stops it, over and over.
absl::Status MeasureMutations(const ControlBenchOptions& options);

}  // namespace weft
