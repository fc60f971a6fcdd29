#include "worker/backend/cuda/nccl_watch.h"

#include <utility>

#include "worker/backend/cuda/cuda_status.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLookEvery{5};         // while something is due
constexpr std::chrono::milliseconds kLookAtIdleEvery{50};  // for errors alone

}  // namespace

NcclWatch::NcclWatch(const NcclLibrary& nccl, CallWatch& calls) : nccl_(nccl), calls_(calls) {}

std::vector<ncclComm_t> NcclWatch::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  return std::move(comms_);
}

NcclWatch::~NcclWatch() {
  Stop();
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

BackendStatus NcclWatch::Start() {
  int device = 0;
  if (auto s = FromCuda(cudaGetDevice(&device), "cudaGetDevice"); !s.ok()) return s;
  for (size_t i = 0; i < kMostPending; ++i) {
    cudaEvent_t event = nullptr;
    const cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (auto s = FromCuda(code, "making an event"); !s.ok()) return s;
    events_.push_back(event);
  }
  free_events_ = events_;
  thread_ = std::thread([this, device] { Watch(device); });
  return {};
}

BackendStatus NcclWatch::Settle(const Call& call, ncclComm_t comm, const std::vector<int>& peers) {
  BackendStatus failed;
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
    *silent = peers;
    ncclResult_t state = ncclInProgress;
    const std::lock_guard<std::mutex> lock(mutex_);
    failed = failure_;
    if (!failed.ok()) return true;
    const ncclResult_t code = nccl_.comm_get_async_error(comm, &state);
    const BackendStatus s = nccl_.ToStatus(code == ncclSuccess ? state : code, call.name, comm);
    if (!s.ok()) failed = FailLocked(calls_.During(call, s));
    return !failed.ok() || state != ncclInProgress;
  });
  return waited.ok() ? failed : Fail(waited);
}

void NcclWatch::Add(ncclComm_t comm) {
  const std::lock_guard<std::mutex> lock(mutex_);
  comms_.push_back(comm);
}

BackendStatus NcclWatch::Queued(const Call& call, int lane, cudaStream_t stream, cudaEvent_t done,
                                const std::vector<int>& peers) {
  BackendStatus failed;
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
    *silent = peers;
    const std::lock_guard<std::mutex> lock(mutex_);
    failed = failure_;
    if (!failed.ok()) return true;
    if (free_events_.empty()) return false;  // the host is that far ahead of the device
    const cudaEvent_t event = free_events_.back();
    failed = FromCuda(cudaEventRecord(event, stream), "recording an event");
    if (failed.ok() && done != nullptr) {
      failed = FromCuda(cudaEventRecord(done, stream), "recording an event");
    }
    if (!failed.ok()) return true;
    free_events_.pop_back();
    Lane& own = lanes_[lane];
    if (own.pending.empty()) own.turn = Clock::now();
    own.pending.push_back({call, peers, event});
    return true;
  });
  changed_.notify_all();
  if (!waited.ok()) return Fail(waited);
  return failed.ok() ? failed : Fail(failed);
}

BackendStatus NcclWatch::Drain() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return IsIdle() || !failure_.ok(); });
  return failure_;
}

BackendStatus NcclWatch::WaitForStream(const Call& call, cudaStream_t stream,
                                       const std::vector<int>& peers) {
  BackendStatus failed;
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
    *silent = peers;
    failed = failure();
    if (!failed.ok()) return true;
    const cudaError_t code = cudaStreamQuery(stream);
    if (code != cudaErrorNotReady) failed = FromCuda(code, call.name);
    return code != cudaErrorNotReady;
  });
  if (!waited.ok()) return Fail(waited);
  return failed.ok() ? failed : Fail(failed);
}

BackendStatus NcclWatch::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

BackendStatus NcclWatch::Fail(const BackendStatus& failure) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return FailLocked(failure);
}

BackendStatus NcclWatch::FailLocked(const BackendStatus& failure) {
  if (failure_.ok()) failure_ = failure;
  changed_.notify_all();
  return failure_;
}

void NcclWatch::Watch(int device) {
  cudaSetDevice(device);  // or its queries would start a context on device 0
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closing_ && failure_.ok()) {
    Look();
    if (!failure_.ok()) break;
    changed_.wait_for(lock, IsIdle() ? kLookAtIdleEvery : kLookEvery,
                      [&] { return closing_ || !failure_.ok(); });
  }
  if (failure_.ok()) return;
  // Nobody enters NCCL after a failure, so nobody is in it now. Aborting may take long; who waits
  // for an answer is not kept from it.
  lock.unlock();
  Abort();
}

bool NcclWatch::IsIdle() const {
  for (const Lane& lane : lanes_) {
    if (!lane.pending.empty()) return false;
  }
  return true;
}

void NcclWatch::Look() {
  const Call* due = &entered_;
  for (const Lane& lane : lanes_) {
    if (!lane.pending.empty()) due = &lane.pending.front().call;
  }
  for (ncclComm_t comm : comms_) {
    ncclResult_t state = ncclSuccess;
    const ncclResult_t code = nccl_.comm_get_async_error(comm, &state);
    const BackendStatus s = nccl_.ToStatus(code == ncclSuccess ? state : code, due->name, comm);
    if (s.ok()) continue;
    FailLocked(calls_.During(*due, s));
    return;
  }
  for (Lane& lane : lanes_) {
    if (auto s = LookAt(lane); !s.ok()) FailLocked(s);
  }
  if (IsIdle()) changed_.notify_all();
}

BackendStatus NcclWatch::LookAt(Lane& lane) {
  while (!lane.pending.empty()) {
    const Pending& oldest = lane.pending.front();
    const cudaError_t code = cudaEventQuery(oldest.done);
    if (code == cudaErrorNotReady) {
      if (Clock::now() - lane.turn < oldest.call.timeout) return {};
      return calls_.Timeout(oldest.call, oldest.peers);
    }
    if (auto s = FromCuda(code, oldest.call.name); !s.ok()) return s;
    free_events_.push_back(oldest.done);
    lane.pending.pop_front();
    lane.turn = Clock::now();
  }
  return {};
}

void NcclWatch::Abort() {
  for (ncclComm_t comm : comms_) nccl_.comm_abort(comm);
  const std::lock_guard<std::mutex> lock(mutex_);
  comms_.clear();
}

}  // namespace weft
