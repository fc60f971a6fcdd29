// Collectives over point-to-point messages: the Comm of the CPU backend, whatever carries the
// bytes. Reductions are direct: each rank of a group owns a slice of the buffer, receives that
// slice from the others, adds the contributions in rank order of the group, and sends the sum to
// all. One rank computes each sum, so all ranks hold the same bits; a library's own all-reduce
// would choose its order by size and topology, and could not be interrupted.
//
// Waiting polls, yields and then naps, because there may be more ranks than processors. The first
// failure breaks the Comm: pending transfers are given up, later calls return the same failure.
//
// Calls that a pass soon waits for (Comm::StartBeside) are made at once, by the thread that starts
// them. Calls that are started (Comm::Start) are made by a thread of their own (started_calls.h),
// with the same code, scratch of their own and tags of their own, over the same transport, which
// both threads use in turns. The thread comes with the first of them. It naps between its polls
// while nobody waits for it: the processor is the computing thread's.
#pragma once
#include <memory>

#include "worker/backend/backend.h"
#include "worker/backend/comm.h"
#include "worker/backend/cpu/comm/transport.h"

namespace weft {

// Largest slice that one rank owns at a time, in bytes; longer buffers go segment by segment.
inline constexpr int64_t kReduceSliceBytes = 1 << 20;
// Up to here every rank sends all it has to all others: one exchange instead of two.
inline constexpr int64_t kSmallReduceBytes = 8 << 10;

std::unique_ptr<Comm> MakeCollectives(std::unique_ptr<Transport> transport,
                                      const CommOptions& options);

}  // namespace weft
