// StartedCalls: collectives that a thread of their own makes, one after the other in the order in
// which they were started, on a Comm that nobody else uses (Comm::Start). Each ends by that Comm's
// deadline or interruption; after the first failure those that follow fail at once. Used by one
// thread, but for its own.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "worker/backend/comm.h"

namespace weft {

class StartedCalls {
 public:
  explicit StartedCalls(std::unique_ptr<Comm> lane);
  // Waits for what was started: interrupt the lane first.
  ~StartedCalls();
  StartedCalls(const StartedCalls&) = delete;
  StartedCalls& operator=(const StartedCalls&) = delete;

  // Returns the ticket: how many were started, this one included.
  int64_t Start(const CollectiveCall& collective);
  // Until that call and all before it have ended; the first failure so far. REQUIRES: ticket was
  // started.
  BackendStatus Wait(int64_t ticket);

  int64_t count() const { return count_; }
  BackendStatus failure() const;  // the first so far, without waiting

 private:
  void MakeCalls();

  const std::unique_ptr<Comm> lane_;
  int64_t count_ = 0;         // started
  mutable std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<CollectiveCall> queue_;
  int64_t ended_ = 0;
  bool closing_ = false;
  BackendStatus failure_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace weft
