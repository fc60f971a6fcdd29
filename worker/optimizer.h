// The update of what a rank owns, and what precedes it: the global gradient norm and the clipping
// factor. Used by the trainer's thread.
#pragma once
#include <cstdint>

#include "absl/types/span.h"
#include "plan/job_spec.h"
#include "worker/backend/device.h"
#include "worker/parameters.h"

namespace weft {

// Sum of squares, in double, of the gradients that this rank counts: of primary shards only, so
// that the sum over all ranks of a replica that own something else counts each element once.
double PrimaryGradientSquares(absl::Span<const OwnPiece> own, Device& device);

// Factor for all gradients: min(1, clip / (norm + 1e-6)), as torch's clip_grad_norm_; 1 if clip is
// 0.
double ClipFactor(double gradient_norm, double clip);

// One step of the optimizer on all of `own`, which is on the device. `step` counts from 1;
// gradients are left as they are, `gradient_scale` applies on the way. Weights of 16 bits become
// the updated ones, rounded.
void UpdateParameters(const OptimizerSpec& optimizer, double lr, double gradient_scale,
                      int64_t step, absl::Span<const OwnPiece> own, Device& device);

}  // namespace weft
