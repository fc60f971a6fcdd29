// NcclComm: ranks that have a device each, on one host or many. A communicator of the whole world
// for calls that block, and one for each way in which others are started beside them, opened with
// ids that rank 0 makes and the coordinator carries; each group is split from the one of its use
// and shares its resources.
//
// A call is queued on the device's stream and returns when NCCL has taken it; NcclWatch sees that
// it ends. What a rank reads afterwards on the host (AllReduceHost, Barrier) has passed all of it.
//
// Sums of f32 and of 16-bit elements are NCCL's own, one call each, in an order of its choice and
// rounded at its hops, unless the order of ranks is asked for (CommOptions::rank_order). Then, and
// for maxima and f64 always, slices are exchanged and combined in rank order, so that 16-bit
// elements are rounded once: the CPU backend's results to the bit.
#pragma once
#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/comm.h"
#include "worker/backend/cuda/comm/nccl_library.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace weft {

// Each rank has a staging buffer of this size on the device, for slices of the other ranks.
inline constexpr int64_t kNcclStagingBytes = int64_t{32} << 20;

// Whether groups of that use have a communicator of the world of their own. Sums in rank order,
// which take several calls and a staging buffer, block where a pass would wait for them.
inline bool OpensWorldOf(GroupUse use, const CommOptions& options) {
  if (use == GroupUse::kStarted) return options.starts_calls;
  if (use == GroupUse::kBeside) return options.starts_beside && !options.rank_order;
  return true;
}

// One for each GroupUse; only those that OpensWorldOf. NCCL listens for each in the process that
// makes them, until all ranks have come: one that nobody uses is never closed.
struct NcclIds {
  ncclUniqueId of_use[kGroupUses] = {};
};

// Collective over all ranks that hold `ids`; at most options.init_timeout_ms. `queue` is the
// device's, which is current on this thread. `why`: for description().
BackendStatus OpenNcclComm(const CommOptions& options, const NcclIds& ids, const Queue& queue,
                           const char* why, std::unique_ptr<Comm>* comm);

}  // namespace weft
