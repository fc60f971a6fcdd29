// The second part of control_bench: many watchers of all jobs, while many jobs train.
#pragma once
#include "absl/status/status.h"
#include "bench/control_client.h"

namespace weft {

// Prints the processor time that weftd takes, how late events come, and how many durable ones were
// lost, which fails the bench if it is not 0. Jobs are placed, launched and run by simulated hosts,
// agents and ranks; durable events come of a job that is paused and resumed all the while.
absl::Status MeasureWatchers(const ControlBenchOptions& options);

}  // namespace weft
