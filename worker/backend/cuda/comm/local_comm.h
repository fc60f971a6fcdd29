// LocalComm: the ranks of one host, as processes or threads, with one GPU between them or several
// that reach each other's memory. Each rank has a staging buffer on its device, which the others
// map; they meet in a LocalBlock. Reductions are one kernel that reads all ranks' buffers in rank
// order, so their sums are the CPU backend's to the bit. Made to prove every path of many ranks on
// a single GPU: a call ends when its data is there, nothing overlaps.
#pragma once
#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/comm.h"
#include "worker/backend/cuda/kernels/kernels.h"

namespace weft {

// Each rank has a staging buffer of this size on the device.
inline constexpr int64_t kLocalStagingBytes = int64_t{32} << 20;

// Waits until all ranks are there, at most options.init_timeout_ms. `queue` is the device's, on
// which the data is computed. `why`: for description().
BackendStatus OpenLocalComm(const CommOptions& options, const Queue& queue, const char* why,
                            std::unique_ptr<Comm>* comm);

}  // namespace weft
