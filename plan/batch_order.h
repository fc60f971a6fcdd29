// Which samples of the run's global order a data-parallel rank reads at a step. The order itself
// (sample index -> window of a file) is data/sampling; it depends on the global sample index alone,
// so every layout trains on the same batches. Pure.
#pragma once
#include <cstdint>

#include "plan/layout.h"

namespace weft {

// First sample of `microbatch` on data rank `dp_index` at `step` (steps count from 1); the
// microbatch holds the micro_batch_size samples that follow. Samples of step s are
// [(s-1)*G, s*G), G = global_batch_size.
// REQUIRES: step >= 1, 0 <= dp_index < dp, 0 <= microbatch < num_microbatches.
int64_t FirstSample(const Layout& layout, int64_t step, int dp_index, int64_t microbatch);

}  // namespace weft
