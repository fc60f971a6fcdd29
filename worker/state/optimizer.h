// The update of what a rank owns, and what precedes it: the global gradient norm. Used by the
// trainer's thread.
#pragma once
#include <cstdint>

#include "absl/types/span.h"
#include "plan/spec/job_spec.h"
#include "worker/backend/device.h"
#include "worker/state/parameters.h"

namespace weft {

// Adds the squares of the gradients that this rank counts to `total` [1, 1], in double: of primary
// shards only, so that the sum over all ranks of a replica that own something else counts each
// element once.
void AddPrimaryGradientSquares(absl::Span<const OwnPiece> own, View total, Device& device);

// One step of the optimizer on all of `own`, which is on the device. `step` counts from 1;
// gradients are left as they are, `gradient_scale` (updates.h) applies on the way. Weights of 16
// bits become the updated ones, rounded.
void UpdateParameters(const OptimizerSpec& optimizer, double lr, View gradient_scale, int64_t step,
                      absl::Span<const OwnPiece> own, Device& device);

}  // namespace weft
