// PartNorms on a CPU, for a Device to own: it gives them its threads and the place where its
// failures are kept, which outlive them.
#pragma once
#include <memory>

#include "worker/backend/cpu/host/threads.h"
#include "worker/backend/failure.h"
#include "worker/backend/part_norms.h"

namespace weft {

std::unique_ptr<PartNorms> MakeCpuPartNorms(const Threads& threads, FirstFailure& failure);

}  // namespace weft
