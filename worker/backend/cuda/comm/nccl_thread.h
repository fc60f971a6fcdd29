// NcclThread is the thread that enters NCCL for a communicator, a call at a time. A communicator
// that blocks takes a call on the thread that makes it (for one that does not, NCCL starts a thread
// for every call), and may wait there for a peer, where a connection is first used. So that is not
// the thread that has to answer: who posts a call goes on when it is through, or when something
// has failed; an abort brings the other out.
//
// Posted to by one thread at a time; destroyed once what was posted last comes out.
#pragma once
#include <nccl.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

namespace weft {

class NcclThread {
 public:
  using Enter = std::function<ncclResult_t()>;

  NcclThread() = default;
  ~NcclThread();  // joins
  NcclThread(const NcclThread&) = delete;
  NcclThread& operator=(const NcclThread&) = delete;

  // `device`: current on the thread.
  void Start(int device);
  // REQUIRES: what was posted before is through. `enter` must own all that it touches: who has
  // posted it may have given up.
  void Post(Enter enter);
  // Whether what was posted last is through; then *code is what it returned.
  bool IsThrough(ncclResult_t* code) const;

 private:
  void Work(int device);
  // Waits for the call after `seen`, awake at first: calls come one after the other. False: none
  // will come.
  bool Await(int64_t seen);

  std::atomic<int64_t> posted_ = 0, through_ = 0;
  std::atomic<bool> closing_ = false;
  Enter enter_;                      // of the call `posted_`, until it is through
  ncclResult_t code_ = ncclSuccess;  // of the call `through_`
  std::mutex mutex_;                 // of changed_ alone
  std::condition_variable changed_;
  std::thread thread_;
};

}  // namespace weft
