// SharedTransport lets two threads of a rank use a transport in turns: the one that computes and
// the one that carries out what it has started.
#pragma once
#include <memory>
#include <mutex>
#include <utility>

#include "worker/backend/cpu/comm/transport.h"

namespace weft {

class SharedTransport final : public Transport {
 public:
  explicit SharedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int world_size() const override { return inner_->world_size(); }
  int64_t max_message_bytes() const override { return inner_->max_message_bytes(); }
  BackendStatus Send(int peer, int tag, const void* data, int64_t bytes, int* request) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return inner_->Send(peer, tag, data, bytes, request);
  }
  BackendStatus Receive(int peer, int tag, void* data, int64_t bytes, int* request) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return inner_->Receive(peer, tag, data, bytes, request);
  }
  BackendStatus Test(int request, bool* done) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return inner_->Test(request, done);
  }
  void Cancel(int request) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    inner_->Cancel(request);
  }
  // Without the lock: while one thread sleeps the other goes on.
  bool AwaitChange(int64_t* seen, std::chrono::microseconds most) override {
    return inner_->AwaitChange(seen, most);
  }

 private:
  const std::unique_ptr<Transport> inner_;
  std::mutex mutex_;  // guards what inner_ does
};

}  // namespace weft
