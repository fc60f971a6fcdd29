// The third part of control_bench: how long a weftd that was killed takes until it answers again,
// by the number of records in its journal.
#pragma once
#include "absl/status/status.h"
#include "bench/control_client.h"

namespace weft {

// Prints the seconds from the start of the process until it answers, and the processor time of
// that. The journal is what a weftd has that has served jobs all its life: each was submitted,
// placed on one host, heard of three times, and is over.
absl::Status MeasureRestart(const ControlBenchOptions& options);

}  // namespace weft
