#include "worker/backend/cpu/comm/started_calls.h"

#include <sys/prctl.h>

#include <utility>

#include "worker/backend/started_call.h"

namespace weft {

StartedCalls::StartedCalls(std::unique_ptr<Comm> lane)
    : lane_(std::move(lane)), thread_([this] { MakeCalls(); }) {}

StartedCalls::~StartedCalls() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

int64_t StartedCalls::Start(const CollectiveCall& collective) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    queue_.push_back(collective);
  }
  changed_.notify_all();
  return ++count_;
}

// Bounded by the lane's deadlines: each call before this one ends by its own.
BackendStatus StartedCalls::Wait(int64_t ticket) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return ended_ >= ticket; });
  return failure_;
}

BackendStatus StartedCalls::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void StartedCalls::MakeCalls() {
  prctl(PR_SET_TIMERSLACK, 1000);  // ns: naps between polls are short
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const CollectiveCall call = queue_.front();
    lock.unlock();
    const BackendStatus status = MakeBlocking(*lane_, call);
    lock.lock();
    queue_.pop_front();
    if (failure_.ok()) failure_ = status;
    ++ended_;
    changed_.notify_all();
  }
}

}  // namespace weft
