// NcclWatch: the watch over NCCL, which has no time limit of its own. It lets one thread at a time
// into NCCL, for calls one of its own (nccl_thread.h), sees on a thread of its own whether what was
// queued on the stream ends by its deadline and whether NCCL reports an error, and after the first
// failure, or an interruption, aborts all communicators: their kernels then leave the device, whose
// stream goes on.
//
// A kernel that waits for a peer can hold up everything: calls into CUDA that need room in a queue
// or the device to be idle, whatever thread makes them, and whoever waits for that thread. So no
// such call is made with mutex_ held, Fail() and failure() return at once, and a second thread sees
// that the first one's look at the device does not come back.
//
// Used by the communicator's thread, but for Fail(), failure() and the two of its own.
#pragma once
#include <cuda_runtime.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/backend/cuda/comm/call_watch.h"
#include "worker/backend/cuda/comm/nccl_library.h"
#include "worker/backend/cuda/comm/nccl_thread.h"

namespace weft {

// Communicators by the set of resources that they share, those that others were split from first.
using NcclFamilies = std::array<std::vector<ncclComm_t>, kGroupUses>;

// Aborts all of them, each family on a thread of its own. An abort raises the flag at which the
// kernels of its family leave the device, which costs nothing, and then waits for the device: for
// the other families' kernels too, so that one may not stand behind the other. (Not as a group of
// NCCL's either: within one, ncclCommAbort still joins the thread that launches for its
// communicator, before the next one's flag is raised.) Returns when all are gone.
void AbortFamilies(const NcclLibrary& nccl, const NcclFamilies& families, int device);

class NcclWatch {
 public:
  static constexpr int kLanes = kGroupUses;
  // A step is shorter; who watches the ranks sees earlier that one computes for ever.
  static constexpr std::chrono::hours kMostBefore{6};

  // How often it looks while something is due, and for errors alone; how long after a deadline a
  // look may stay away.
  struct Pace {
    std::chrono::milliseconds due{5};
    std::chrono::milliseconds idle{50};
    std::chrono::milliseconds patience{1000};
  };

  // `calls` outlives it.
  NcclWatch(const NcclLibrary& nccl, CallWatch& calls) : NcclWatch(nccl, calls, Pace{}) {}
  NcclWatch(const NcclLibrary& nccl, CallWatch& calls, const Pace& pace);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // On the device that is current on the calling thread.
  BackendStatus Start();
  int device() const { return device_; }

  // Calls into NCCL, on the thread for that; not after a failure. Returns when NCCL has taken the
  // call, or at the first failure, which the call's deadline is: `enter` must own what it touches.
  // `comm`: for NCCL's words. `peers`: for the message that says who is waited for.
  BackendStatus Run(const Call& call, ncclComm_t comm, const std::vector<int>& peers,
                    NcclThread::Enter enter);
  // Waits until `comm`, which does not block, has taken what it was given, or, if it does, is made.
  BackendStatus Settle(const Call& call, ncclComm_t comm, const std::vector<int>& peers);
  // From now on `comm` is looked after: aborted at the first failure, which may have been before.
  void Add(ncclComm_t comm, size_t family);
  // Ends the watch; after a failure, when all are aborted. What Add() was given and was not aborted
  // is the caller's to destroy, on that thread if it waits.
  NcclFamilies Stop();
  NcclThread& thread() { return thread_; }
  // The call that is queued next on that stream begins here: its time counts from when the device
  // comes to this point, and not from when the host, which may be far ahead, queues it. What is
  // computed before may take kMostBefore.
  BackendStatus MarkBeginning(const Call& call, int lane, cudaStream_t stream);
  // `call` is on the stream with all that it consists of, behind its MarkBeginning: it is due from
  // now on, in its turn among those of its lane (each stream has one). `done`: an event of the
  // caller's to record too, or null.
  BackendStatus Queued(const Call& call, int lane, cudaStream_t stream, cudaEvent_t done,
                       const std::vector<int>& peers);
  // Waits until all that is due has ended; each has its own time. Looks itself, as often as it can.
  // The first failure, or OK.
  BackendStatus Drain();

  // The first failure, or OK. From any thread, at once.
  BackendStatus failure() const;
  // From any thread, at once. All later calls fail like this; returns the first failure.
  BackendStatus Fail(const BackendStatus& failure);

 private:
  struct Pending {
    int64_t number = 0;  // among all of this watch
    Call call;
    std::vector<int> peers;
    cudaEvent_t begun = nullptr;  // null: the device has been seen to come to it
    cudaEvent_t done = nullptr;
    bool recorded = false;  // `done`: its state says nothing before
  };
  struct Lane {
    cudaEvent_t beginning = nullptr;             // of the call that is queued now
    std::deque<Pending> pending;                 // oldest first
    std::chrono::steady_clock::time_point turn;  // when the oldest one's came, or it began
    int looks = 0;                               // at its events that have not come back
    std::chrono::steady_clock::time_point look;  // when the first of them began, or one came back
  };
  static constexpr size_t kMostPending = 256;

  // The failure, if there is one; else notes that `call` enters NCCL.
  BackendStatus Enters(const Call& call);
  BackendStatus FailLocked(const BackendStatus& failure);
  // Two threads: one looks, one ends what has failed and sees that the other one still looks.
  void Watch();
  void Guard();
  void LookAtComms();
  void LookAtLanes();
  void LookAt(Lane& lane);
  // Asks CUDA for the state of an event of that lane; null is not there yet.
  cudaError_t Ask(Lane& lane, cudaEvent_t event);
  bool IsOverdue(const Lane& lane, std::chrono::milliseconds patience) const;
  bool IsIdle() const;
  bool IsEmpty() const;

  const NcclLibrary& nccl_;
  CallWatch& calls_;
  const Pace pace_;
  int device_ = 0;

  // Held inside NCCL. Before mutex_.
  std::timed_mutex entrance_;

  mutable std::mutex mutex_;  // guards all below; not held in any call to CUDA or NCCL
  std::condition_variable changed_;
  NcclFamilies families_;
  Lane lanes_[kLanes];
  int64_t queued_ = 0;
  Call entered_;  // the last one into NCCL
  std::vector<cudaEvent_t> free_events_;
  BackendStatus failure_;
  bool closing_ = false;  // the watcher is to leave
  bool closed_ = false;   // it has: so is the guard

  std::vector<cudaEvent_t> events_;
  NcclThread thread_;
  std::thread watcher_;
  std::thread guard_;
};

}  // namespace weft
