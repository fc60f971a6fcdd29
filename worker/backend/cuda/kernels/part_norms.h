// PartNorms on a CUDA device, for a Device to own: it gives them what it queues its work on and the
// place where its failures are kept, which outlive them. The CPU's define them.
#pragma once
#include <memory>

#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/failure.h"
#include "worker/backend/part_norms.h"

namespace weft {

std::unique_ptr<PartNorms> MakeCudaPartNorms(const Queue& queue, FirstFailure& failure);

}  // namespace weft
