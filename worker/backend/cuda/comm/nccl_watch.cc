#include "worker/backend/cuda/comm/nccl_watch.h"

#include <algorithm>
#include <utility>

#include "worker/backend/cuda/runtime/cuda_status.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Until a thread that is inside NCCL when something fails has come out. An abort may come beside
// it, which ends what it waits for; that it comes after it is better.
constexpr std::chrono::seconds kComeOutWithin{1};

}  // namespace

void AbortFamilies(const NcclLibrary& nccl, const NcclFamilies& families, int device) {
  std::vector<std::jthread> threads;
  for (const std::vector<ncclComm_t>& family : families) {
    if (family.empty()) continue;
    threads.emplace_back([&nccl, &family, device] {
      cudaSetDevice(device);  // NCCL comes back to what is current: device 0 has no context of ours
      for (ncclComm_t comm : family) nccl.comm_abort(comm);
    });
  }
}

NcclWatch::NcclWatch(const NcclLibrary& nccl, CallWatch& calls, const Pace& pace)
    : nccl_(nccl), calls_(calls), pace_(pace) {}

NcclFamilies NcclWatch::Stop() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
  {  // the guard last: the watcher may be in a look that does not come back unaided
    const std::lock_guard<std::mutex> lock(mutex_);
    closed_ = true;
  }
  changed_.notify_all();
  if (guard_.joinable()) guard_.join();
  return std::exchange(families_, {});
}

NcclWatch::~NcclWatch() {
  Stop();
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

BackendStatus NcclWatch::Start() {
  if (auto s = FromCuda(cudaGetDevice(&device_), "cudaGetDevice"); !s.ok()) return s;
  for (size_t i = 0; i < 2 * kMostPending; ++i) {  // a beginning and an end each
    cudaEvent_t event = nullptr;
    const cudaError_t code = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (auto s = FromCuda(code, "making an event"); !s.ok()) return s;
    events_.push_back(event);
  }
  free_events_ = events_;
  thread_.Start(device_);
  watcher_ = std::thread([this] { Watch(); });
  guard_ = std::thread([this] { Guard(); });
  return {};
}

BackendStatus NcclWatch::Enters(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) entered_ = call;
  return failure_;
}

BackendStatus NcclWatch::Run(const Call& call, ncclComm_t comm, const std::vector<int>& peers,
                             NcclThread::Enter enter) {
  if (BackendStatus s = failure(); !s.ok()) return s;  // the thread may still be inside
  thread_.Post([this, call, enter = std::move(enter)] {
    const std::lock_guard<std::timed_mutex> entrance(entrance_);
    return Enters(call).ok() ? enter() : ncclInProgress;
  });
  ncclResult_t code = ncclSuccess;
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
    *silent = peers;
    return thread_.IsThrough(&code) || !failure().ok();
  });
  if (!waited.ok()) return Fail(waited);
  if (BackendStatus s = failure(); !s.ok()) return s;
  const BackendStatus s = nccl_.ToStatus(code, call.name, comm);
  return s.ok() ? s : Fail(calls_.During(call, s));
}

BackendStatus NcclWatch::Settle(const Call& call, ncclComm_t comm, const std::vector<int>& peers) {
  BackendStatus failed;
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
    *silent = peers;
    ncclResult_t state = ncclInProgress;
    const std::lock_guard<std::timed_mutex> entrance(entrance_);
    failed = failure();
    if (!failed.ok()) return true;
    const ncclResult_t code = nccl_.comm_get_async_error(comm, &state);
    const BackendStatus s = nccl_.ToStatus(code == ncclSuccess ? state : code, call.name, comm);
    if (!s.ok()) failed = Fail(calls_.During(call, s));
    return !failed.ok() || state != ncclInProgress;
  });
  return waited.ok() ? failed : Fail(waited);
}

void NcclWatch::Add(ncclComm_t comm, size_t family) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    families_[family].push_back(comm);
  }
  changed_.notify_all();
}

BackendStatus NcclWatch::MarkBeginning(const Call& call, int lane, cudaStream_t stream) {
  BackendStatus failed;
  Lane& own = lanes_[lane];
  cudaEvent_t event = nullptr;
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* /*silent*/) {
    const std::lock_guard<std::mutex> lock(mutex_);
    failed = failure_;
    if (!failed.ok()) return true;
    event = own.beginning;  // of a call that was not queued after all
    if (event == nullptr && !free_events_.empty()) {
      event = free_events_.back();
      free_events_.pop_back();
    }
    own.beginning = event;
    return event != nullptr;
  });
  if (!waited.ok()) return Fail(waited);
  if (!failed.ok()) return failed;
  failed = FromCuda(cudaEventRecord(event, stream), "recording an event");
  return failed.ok() ? failed : Fail(failed);
}

BackendStatus NcclWatch::Queued(const Call& call, int lane, cudaStream_t stream, cudaEvent_t done,
                                const std::vector<int>& peers) {
  BackendStatus failed;
  cudaEvent_t event = nullptr;
  bool was_idle = false;
  // It is due before its event is recorded, as the recording may wait for room in a queue, behind
  // this very call.
  const BackendStatus waited = calls_.Wait(call, [&](std::vector<int>* silent) {
    *silent = peers;
    const std::lock_guard<std::mutex> lock(mutex_);
    failed = failure_;
    if (!failed.ok()) return true;
    if (free_events_.empty()) return false;  // the host is that far ahead of the device
    event = free_events_.back();
    free_events_.pop_back();
    was_idle = IsIdle();
    Lane& own = lanes_[lane];
    if (own.pending.empty()) own.turn = Clock::now();
    own.pending.push_back({.number = ++queued_,
                           .call = call,
                           .peers = peers,
                           .begun = std::exchange(own.beginning, nullptr),
                           .done = event});
    return true;
  });
  if (was_idle) changed_.notify_all();
  if (!waited.ok()) return Fail(waited);
  if (!failed.ok()) return failed;
  failed = FromCuda(cudaEventRecord(event, stream), "recording an event");
  if (failed.ok() && done != nullptr) {
    failed = FromCuda(cudaEventRecord(done, stream), "recording an event");
  }
  if (!failed.ok()) return Fail(failed);
  const std::lock_guard<std::mutex> lock(mutex_);
  lanes_[lane].pending.back().recorded = true;
  return failure_;
}

BackendStatus NcclWatch::Drain() {
  for (int64_t round = 0;; ++round) {
    LookAtLanes();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (IsIdle() || !failure_.ok()) return failure_;
    }
    CallWatch::Pause(round);
  }
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

void NcclWatch::Watch() {
  cudaSetDevice(device_);  // or its queries would start a context on device 0
  while (true) {
    LookAtComms();
    LookAtLanes();
    std::unique_lock<std::mutex> lock(mutex_);
    const bool was_idle = IsIdle();
    changed_.wait_for(lock, was_idle ? pace_.idle : pace_.due,
                      [&] { return closing_ || !failure_.ok() || (was_idle && !IsIdle()); });
    if (closing_ || !failure_.ok()) return;
  }
}

void NcclWatch::Guard() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!closed_ || !failure_.ok()) {
    if (failure_.ok()) {
      changed_.wait_for(lock, pace_.patience, [&] { return closed_ || !failure_.ok(); });
      for (const Lane& lane : lanes_) {
        if (!IsOverdue(lane, pace_.patience)) continue;
        FailLocked(calls_.Timeout(lane.pending.front().call, lane.pending.front().peers));
      }
      continue;
    }
    // Nobody enters NCCL after a failure; what is made at that moment comes here later.
    changed_.wait(lock, [&] { return closed_ || !IsEmpty(); });
    if (IsEmpty()) return;
    lock.unlock();
    if (entrance_.try_lock_for(kComeOutWithin)) entrance_.unlock();
    lock.lock();
    const NcclFamilies families = std::exchange(families_, {});
    lock.unlock();
    AbortFamilies(nccl_, families,
                  device_);  // takes long; who waits for an answer has it meanwhile
    lock.lock();
  }
}

bool NcclWatch::IsIdle() const {
  for (const Lane& lane : lanes_) {
    if (!lane.pending.empty()) return false;
  }
  return true;
}

bool NcclWatch::IsEmpty() const {
  return std::all_of(families_.begin(), families_.end(),
                     [](const std::vector<ncclComm_t>& family) { return family.empty(); });
}

bool NcclWatch::IsOverdue(const Lane& lane, std::chrono::milliseconds patience) const {
  if (lane.pending.empty()) return false;
  const Pending& oldest = lane.pending.front();
  const Clock::time_point now = Clock::now();
  const auto most = oldest.call.timeout + patience;
  if (oldest.begun == nullptr) return now - lane.turn >= most;
  // Nobody knows whether it has begun while the look at that does not come back.
  return now - lane.turn >= kMostBefore || (lane.looks > 0 && now - lane.look >= most);
}

// Returns at once while another thread is inside: that one looks itself, at its own.
void NcclWatch::LookAtComms() {
  const std::unique_lock<std::timed_mutex> entrance(entrance_, std::try_to_lock);
  if (!entrance.owns_lock()) return;
  NcclFamilies families;
  Call due;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    families = families_;
    due = entered_;
    for (const Lane& lane : lanes_) {
      if (!lane.pending.empty()) due = lane.pending.front().call;
    }
  }
  for (const std::vector<ncclComm_t>& family : families) {
    for (ncclComm_t comm : family) {
      ncclResult_t state = ncclSuccess;
      const ncclResult_t code = nccl_.comm_get_async_error(comm, &state);
      const BackendStatus s = nccl_.ToStatus(code == ncclSuccess ? state : code, due.name, comm);
      if (s.ok()) continue;
      Fail(calls_.During(due, s));
      return;
    }
  }
}

void NcclWatch::LookAtLanes() {
  for (Lane& lane : lanes_) LookAt(lane);
}

cudaError_t NcclWatch::Ask(Lane& lane, cudaEvent_t event) {
  if (event == nullptr) return cudaErrorNotReady;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (++lane.looks == 1) lane.look = Clock::now();
  }
  const cudaError_t code = cudaEventQuery(event);
  const std::lock_guard<std::mutex> lock(mutex_);
  --lane.looks;
  lane.look = Clock::now();
  return code;
}

// From two threads: whoever finds that the oldest has begun or ended notes it, if the other has
// not.
void NcclWatch::LookAt(Lane& lane) {
  while (true) {
    int64_t number = 0;
    cudaEvent_t begun = nullptr;
    cudaEvent_t event = nullptr;
    bool is_overdue = false;  // before the look: what ended while this thread had no core has ended
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (lane.pending.empty() || !failure_.ok()) return;
      is_overdue = IsOverdue(lane, {});
      const Pending& oldest = lane.pending.front();
      number = oldest.number;
      begun = oldest.begun;
      event = begun != nullptr ? begun : oldest.recorded ? oldest.done : nullptr;
    }
    const cudaError_t code = Ask(lane, event);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (lane.pending.empty() || lane.pending.front().number != number) continue;
    Pending& oldest = lane.pending.front();
    if (oldest.begun != begun) continue;
    if (code == cudaErrorNotReady) {
      const bool is_late = is_overdue && IsOverdue(lane, {});
      if (is_late) FailLocked(calls_.Timeout(oldest.call, oldest.peers));
      return;
    }
    if (auto s = FromCuda(code, oldest.call.name); !s.ok()) {
      FailLocked(s);
      return;
    }
    lane.turn = Clock::now();
    free_events_.push_back(event);
    if (begun != nullptr) {
      oldest.begun = nullptr;
    } else {
      lane.pending.pop_front();
    }
  }
}

}  // namespace weft
