// SideStream: a stream of high priority beside the device's own, on which calls are started, with
// the events by which each waits for the other. Used by the communicator's thread.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <vector>

namespace weft {

class SideStream {
 public:
  // `most`: calls whose ends are told apart; of older ones a later end stands for theirs.
  explicit SideStream(int64_t most) : done_(static_cast<size_t>(most)) {}
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

  // Makes stream and events on the current device.
  cudaError_t Open();
  cudaStream_t stream() const { return stream_; }

  // Lets this stream wait: what is queued here from now on comes after what `device` holds now.
  cudaError_t Follow(cudaStream_t device);
  // Returns the event to record behind the call that is queued next.
  cudaEvent_t next_done() const { return done_[Slot(started_ + 1)]; }
  // Counts that call, which is queued with its event. Returns its ticket, from 1.
  int64_t Count() { return ++started_; }
  int64_t started() const { return started_; }
  // Lets `device` wait for that call and all before it. 0: for none.
  cudaError_t Join(cudaStream_t device, int64_t ticket);

 private:
  size_t Slot(int64_t ticket) const { return static_cast<size_t>(ticket) % done_.size(); }

  cudaStream_t stream_ = nullptr;
  cudaEvent_t ready_ = nullptr;
  std::vector<cudaEvent_t> done_;
  int64_t started_ = 0;
};

}  // namespace weft
