// Streams that run what they are given as late or as early as CUDA allows: work is queued, and runs
// when the host waits for something, in an order that looks for trouble. CUDA promises no order but
// that of one stream and of the waits for events; a wait that the backend forgets gives other
// results here, where on a device it would give them once in a while.
//
// A stream is lazy or not from its beginning on. One that is not runs everything at once.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

struct cudaStream;

namespace weft::emulation {

inline int64_t NowMs() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// An order says which stream of a device runs its oldest work next, once the host waits for one.
enum class StreamOrder {
  kAtOnce,       // no stream is lazy
  kLazy,         // the one that is waited for, and what it waits for itself
  kOthersFirst,  // all others, as far as they get
  kRandom,       // any
};

// Holds for streams that are made from now on, in any thread. At first: what
// WEFT_EMULATED_STREAMS says, "lazy", "others_first" or "random:SEED"; at once without it.
void SetStreamOrder(StreamOrder order, uint64_t seed = 0);

// The waits that this host thread asks for (of a stream for an event, of the host for an event or a
// stream) are counted; the one whose number, from 0, is `dropped_wait` does not take place.
inline thread_local int64_t num_waits = 0;
inline thread_local int64_t dropped_wait = -1;
inline bool DropsWait() {
  return num_waits++ == dropped_wait;
}

// The lazy streams of one device.
struct LazyDevice {
  std::recursive_mutex mutex;         // guards all below, and its streams' queues
  std::vector<cudaStream*> streams;   // oldest first
  uint64_t random = 0;                // state
  std::atomic<int64_t> last_step_ms;  // when a stream last ran something
};

// One piece of a stream's work.
struct StreamWork {
  std::function<bool()> run;    // returns whether it is over; else it is called again
  cudaStream* needs = nullptr;  // the stream that it waits for, or null
};

// How many pieces of a stream's work are over; outlives the stream.
struct StreamProgress {
  std::atomic<int64_t> done = 0;
};

// Enters a stream that begins, as cudaStream does; null: it is not lazy.
LazyDevice* AddStream(cudaStream* stream);
void RemoveStream(cudaStream* stream);
// Runs what is due until the first `count` pieces of the stream's work are over. What never ends
// ends the process.
void RunUntil(cudaStream* stream, int64_t count);
// Runs one piece of work at most, for whoever polls. A thread that queues nothing is an onlooker:
// it moves a device only where its host has not for a while, as it waits for something else.
void Poll(cudaStream* stream);
// All that is queued on the lazy streams of a device.
void RunAll(int of_device);

}  // namespace weft::emulation
