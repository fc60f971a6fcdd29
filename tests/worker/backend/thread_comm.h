// Ranks as threads of one process: Comms that run the CPU backend's collectives over mailboxes
// instead of MPI. Transfers are strict: a send is done only when its receive was posted, so that
// code which would hang with large messages hangs (and times out) with small ones too.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "worker/backend/backend.h"
#include "worker/backend/comm.h"

namespace weft {

struct ThreadCommOptions {
  CommOptions comm = {.timeout_ms = 20000};
  int64_t max_message_bytes = 1 << 30;
};

// A deadline that a test lets pass, and before which other ranks do what they are to do: make their
// groups, come to a call. That takes some six turns of threads. With four busy loops and three
// other tests on two cores a thread waits for its turn behind ten others at most, 3 ms each: 180 ms
// in all, of which this is five times as much.
inline constexpr int64_t kShortTimeoutMs = 1000;

// One Comm per rank, each for one thread; they may be destroyed in any order.
std::vector<std::unique_ptr<Comm>> MakeThreadComms(int world,
                                                   const ThreadCommOptions& options = {});

// Whether these Comms see which ranks of a group have not come, and how long a message is that they
// are sent. NCCL sees neither.
bool ThreadCommsSeeTheirPeers();

}  // namespace weft
