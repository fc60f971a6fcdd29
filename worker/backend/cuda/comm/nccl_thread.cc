#include "worker/backend/cuda/comm/nccl_thread.h"

#include <cuda_runtime.h>

#include <chrono>
#include <utility>

namespace weft {
namespace {

// The thread stays awake so long after a call: about what the host needs between two of a block.
constexpr std::chrono::microseconds kAwake{50};

}  // namespace

NcclThread::~NcclThread() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void NcclThread::Start(int device) {
  thread_ = std::thread([this, device] { Work(device); });
}

void NcclThread::Post(Enter enter) {
  enter_ = std::move(enter);
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++posted_;
  }
  changed_.notify_all();
}

bool NcclThread::IsThrough(ncclResult_t* code) const {
  if (through_ != posted_) return false;
  *code = code_;
  return true;
}

bool NcclThread::Await(int64_t seen) {
  const auto sleeps = std::chrono::steady_clock::now() + kAwake;
  while (posted_ == seen && !closing_) {
    if (std::chrono::steady_clock::now() < sleeps) {
      std::this_thread::yield();
      continue;
    }
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [&] { return posted_ != seen || closing_; });
  }
  return posted_ != seen;
}

void NcclThread::Work(int device) {
  cudaSetDevice(device);  // NCCL goes by what is current
  for (int64_t seen = 0; Await(seen); ++seen) {
    code_ = enter_();
    enter_ = nullptr;
    ++through_;
  }
}

}  // namespace weft
