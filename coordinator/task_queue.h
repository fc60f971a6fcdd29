// TaskQueue: what other threads want of the one that owns a state, bounded in tasks and in bytes.
// Whatever has come by the time it is taken is one round. Thread-safe.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace weft {

class TaskQueue final {
 public:
  using Task = std::function<void()>;
  // There is always room for the end of a stream.
  enum class Room { kBounded, kAlways };
  // A task that can wait for the next tick wakes nobody.
  enum class Wake { kNow, kWithTick };

  explicit TaskQueue(int64_t max_bytes) : max_bytes_(max_bytes) {}

  // Drops the task if there is no room for it or the queue is closed; then it returns false.
  bool Post(Task task, int64_t bytes = 0, Room room = Room::kBounded, Wake wake = Wake::kNow);
  // Nothing more is taken in.
  void Close();

  // Returns when there is something to do, when the time is over, or when the queue is closed.
  // False: it is closed, and empty.
  bool Wait(int64_t timeout_ms);
  std::deque<Task> Take();

 private:
  const int64_t max_bytes_;
  std::mutex mutex_;  // guards all below
  std::deque<Task> tasks_;
  int64_t bytes_ = 0;
  bool wanted_ = false;  // some of it does not wait for the tick
  bool closing_ = false;
  std::condition_variable wake_;
};

}  // namespace weft
