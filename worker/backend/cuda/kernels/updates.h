// The updates of parameters on a CUDA device, for a Device to own: it gives them what it queues its
// work on and the place where its failures are kept, which outlive them. The CPU's define them.
#pragma once
#include <cuda_runtime.h>

#include <memory>

#include "worker/backend/adafactor_steps.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/failure.h"
#include "worker/backend/updates.h"

namespace weft {

std::unique_ptr<Updates> MakeCudaUpdates(const Queue& queue, FirstFailure& failure);
std::unique_ptr<AdafactorSteps> MakeCudaAdafactor(const Queue& queue, FirstFailure& failure);

// Updates::QuantisedAdamw (quantised_adamw.cu).
cudaError_t QueueQuantisedAdamw(const Queue& queue, const AdamwParameters& adamw,
                                double weight_decay, View gradient, View param,
                                const QuantisedView& exp_avg, const QuantisedView& exp_avg_sq);

}  // namespace weft
