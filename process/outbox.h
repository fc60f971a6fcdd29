// An Outbox holds what is on its way down a gRPC stream: one write at a time, the rest queued,
// within a bound in messages and in bytes. It is shared by whoever sends and gRPC's reactor,
// whichever lives longer. Thread-safe.
#pragma once
#include <grpcpp/support/status.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>

#include "absl/status/status.h"
#include "process/rpc.h"

namespace weft {

template <typename Reactor, typename Message>
class Outbox {
 public:
  Outbox(Reactor* reactor, size_t max_messages) : reactor_(reactor), max_messages_(max_messages) {}

  // A reader that is too slow for the bound is cut off, RESOURCE_EXHAUSTED.
  void Send(const Message& message) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return;
    const auto bytes = static_cast<int64_t>(message.ByteSizeLong());
    // One message that is larger than the bound may still go alone.
    const bool full =
        queue_.size() >= max_messages_ || (!queue_.empty() && bytes_ + bytes > kMaxOutboxBytes);
    if (full) {
      queue_.resize(writing_ ? 1 : 0);
      closing_ = true;
      status_ = grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                             "reads too slowly; come back and resume from what was seen last");
    } else {
      queue_.push_back(message);
      bytes_ += bytes;
    }
    Pump();
  }

  // Queued messages still go out, unless the reason is an error.
  void Close(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (closing_) return;
    closing_ = true;
    status_ = ToGrpc(status);
    Pump();
  }

  void WriteDone(bool ok) {
    const std::lock_guard<std::mutex> lock(mutex_);
    writing_ = false;
    bytes_ -= static_cast<int64_t>(queue_.front().ByteSizeLong());
    queue_.pop_front();
    if (!ok) {
      queue_.clear();
      closing_ = true;
    }
    Pump();
  }

  void ReactorIsGone() {
    const std::lock_guard<std::mutex> lock(mutex_);
    reactor_ = nullptr;
  }

 private:
  static constexpr int64_t kMaxOutboxBytes = int64_t{2} * kMaxMessageBytes;

  void Pump() {
    if (writing_ || !reactor_ || finished_) return;
    if (!queue_.empty()) {
      writing_ = true;
      reactor_->StartWrite(&queue_.front());
    } else if (closing_) {
      finished_ = true;
      reactor_->Finish(status_);
    }
  }

  std::mutex mutex_;  // guards all below
  Reactor* reactor_;
  const size_t max_messages_;
  std::deque<Message> queue_;  // the front is being written if writing_
  int64_t bytes_ = 0;          // of the queue
  bool writing_ = false;
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status status_;
};

}  // namespace weft
