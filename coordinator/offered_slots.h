// The ranks that an offered host takes. Used by hosts.h and host_memory.h. Pure.
#pragma once
#include "coordinator/job_state.h"

namespace weft {

// Returns how many ranks the host takes: no more than the job says of a node, than its agent offers
// or, where ranks run on GPUs, than it has of these. Where nobody has said anything of slots, it
// is what the agent offers: its slots, else one per GPU, or per so many cores as a worker computes
// with.
int SlotsOf(const OfferedHost& host, const Job& job);

}  // namespace weft
