// NcclWatch: the watch over NCCL, which has no time limit of its own. It lets one thread at a time
// into NCCL, sees on a thread of its own whether what was queued on the stream ends by its deadline
// and whether NCCL reports an error, and after the first failure, or an interruption, aborts all
// communicators: their kernels then leave the device, whose stream goes on.
//
// Used by the communicator's thread, but for Fail() and the watching thread.
#pragma once
#include <cuda_runtime.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/backend/cuda/call_watch.h"
#include "worker/backend/cuda/nccl_library.h"

namespace weft {

class NcclWatch {
 public:
  static constexpr int kLanes = 2;

  // `calls` outlives it. A queued call's time counts from when those before it are through.
  NcclWatch(const NcclLibrary& nccl, CallWatch& calls);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // On the device that is current on the calling thread.
  BackendStatus Start();

  // Calls into NCCL: enter() returns ncclResult_t. Not after a failure.
  template <typename Enter>
  BackendStatus Run(const Call& call, ncclComm_t comm, const Enter& enter) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (!failure_.ok()) return failure_;
      entered_ = call;
      if (auto s = nccl_.ToStatus(enter(), call.name, comm); !s.ok()) {
        return FailLocked(calls_.During(call, s));
      }
    }
    return {};
  }
  // Waits until `comm` has taken what it was given: communicators do not block. `peers`: for the
  // message that says who is waited for.
  BackendStatus Settle(const Call& call, ncclComm_t comm, const std::vector<int>& peers);
  // From now on `comm` is looked after.
  void Add(ncclComm_t comm);
  // Ends the watch. What Add() was given and was not aborted is the caller's to destroy.
  std::vector<ncclComm_t> Stop();
  // `call` is on the stream with all that it consists of: it is due from now on, in its turn among
  // those of its lane (each stream has one). `done`: an event of the caller's to record too, or
  // null.
  BackendStatus Queued(const Call& call, int lane, cudaStream_t stream, cudaEvent_t done,
                       const std::vector<int>& peers);
  // Waits until all that is due has ended; each has its own time. The first failure, or OK.
  BackendStatus Drain();
  // Waits until the stream is through.
  BackendStatus WaitForStream(const Call& call, cudaStream_t stream, const std::vector<int>& peers);

  // The first failure, or OK.
  BackendStatus failure() const;
  // From any thread. All later calls fail like this; returns the first failure.
  BackendStatus Fail(const BackendStatus& failure);

 private:
  struct Pending {
    Call call;
    std::vector<int> peers;
    cudaEvent_t done = nullptr;
  };
  struct Lane {
    std::deque<Pending> pending;                 // oldest first
    std::chrono::steady_clock::time_point turn;  // when the oldest one's came
  };
  static constexpr size_t kMostPending = 256;

  BackendStatus FailLocked(const BackendStatus& failure);
  void Watch(int device);
  // Looks once, with the lock held.
  void Look();
  BackendStatus LookAt(Lane& lane);
  bool IsIdle() const;
  void Abort();

  const NcclLibrary& nccl_;
  CallWatch& calls_;

  mutable std::mutex mutex_;  // guards all below, and is held inside NCCL
  std::condition_variable changed_;
  std::vector<ncclComm_t> comms_;
  Lane lanes_[kLanes];
  Call entered_;  // the last one into NCCL
  std::vector<cudaEvent_t> free_events_;
  std::vector<cudaEvent_t> events_;
  BackendStatus failure_;
  bool closing_ = false;

  std::thread thread_;
};

}  // namespace weft
