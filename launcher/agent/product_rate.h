// The rate of a short product on this host, by weft-worker --probe: the agent itself has no BLAS.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"
#include "plan/spec/cluster.h"

namespace weft {

// FLOP/s within about 50 ms of measuring, of the slowest device. Unavailable with the worker's last
// words, or if there is nothing within `limit_ms`; then its process is gone too. Its parent, who
// collects all children, is the agent's main thread.
absl::StatusOr<double> ProductRate(BackendKind backend, int threads, int64_t limit_ms);

}  // namespace weft
