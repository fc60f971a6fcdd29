#include "coordinator/task_queue.h"

#include <chrono>
#include <utility>

namespace weft {
namespace {

constexpr size_t kMaxTasks = 1000000;

}  // namespace

bool TaskQueue::Post(Task task, int64_t bytes, Room room, Wake wake) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool full = tasks_.size() >= kMaxTasks || bytes_ + bytes > max_bytes_;
    if (closing_ || (full && room == Room::kBounded)) return false;
    tasks_.push_back(std::move(task));
    bytes_ += bytes;
    wanted_ = wanted_ || wake == Wake::kNow;
  }
  if (wake == Wake::kNow) wake_.notify_one();
  return true;
}

void TaskQueue::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
}

bool TaskQueue::Wait(int64_t timeout_ms) {
  std::unique_lock<std::mutex> lock(mutex_);
  wake_.wait_for(lock, std::chrono::milliseconds(timeout_ms),
                 [this] { return closing_ || wanted_; });
  return !closing_ || !tasks_.empty();
}

std::deque<TaskQueue::Task> TaskQueue::Take() {
  const std::lock_guard<std::mutex> lock(mutex_);
  bytes_ = 0;
  wanted_ = false;
  return std::exchange(tasks_, {});
}

}  // namespace weft
