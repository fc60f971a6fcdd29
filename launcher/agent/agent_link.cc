#include "launcher/agent/agent_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "process/clock.h"
#include "process/rpc.h"
#include "proto/agent.grpc.pb.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using Stream = grpc::ClientReaderWriter<proto::AgentReport, proto::AgentOrder>;

constexpr int64_t kLongestHeartbeatMs = 1000;
constexpr int64_t kHeartbeatsPerLease = 8;  // for short leases
constexpr milliseconds kFirstDialEvery{5};  // the coordinator starts beside the agent
constexpr milliseconds kRedialEvery{100};
constexpr milliseconds kEndOfStream{500};  // from a failed write to the failed read
constexpr int64_t kDialForMs = 3600000;

bool IsFinal(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
}

}  // namespace

class AgentLink::Impl {
 public:
  explicit Impl(AgentLinkOptions options)
      : options_(std::move(options)), hello_(options_.hello), heard_ms_(BootTimeMs()) {
    thread_ = std::thread([this] { Run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    changed_.notify_all();
    thread_.join();
  }

  void Say(const proto::AgentReport& report) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(report);
    }
    changed_.notify_all();
  }

  std::vector<proto::AgentOrder> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(orders_, {});
  }

  std::optional<absl::Status> refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

  void Flush(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(timeout_ms),
                      [&] { return waiting_.empty() || refused_ || context_ == nullptr; });
  }

 private:
  // One stream after the other, until it is closed or refused.
  void Run() {
    bool first = true;
    while (true) {
      const auto channel = OpenChannel(options_.coordinator, options_.bundle);
      if (channel.ok()) {
        first = false;
        RunStream(*channel);
      } else if (IsFinal(channel.status())) {
        Refuse(channel.status());
      }
      std::unique_lock lock(mutex_);
      if (BootTimeMs() - heard_ms_ > kDialForMs) {
        lock.unlock();
        Refuse(absl::UnavailableError("no coordinator was reached for an hour"));
        lock.lock();
      }
      changed_.wait_for(lock, first ? kFirstDialEvery : kRedialEvery,
                        [&] { return closing_ || refused_; });
      if (closing_ || refused_) return;
    }
  }

  void RunStream(const std::shared_ptr<grpc::Channel>& channel) {
    proto::AgentReport hello;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
      context_ = std::make_unique<grpc::ClientContext>();
      broken_ = false;
      sent_ = 0;
      *hello.mutable_hello() = hello_;
    }
    const std::unique_ptr<proto::AgentLink::Stub> stub = proto::AgentLink::NewStub(channel);
    const std::unique_ptr<Stream> stream = stub->Attach(context_.get());
    std::thread reader([&] { Read(*stream); });
    if (stream->Write(hello)) Write(*stream);
    {
      // The coordinator's status, if it has one, must not be overtaken by a cancellation.
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kEndOfStream, [&] { return broken_ || closing_; });
      if (!broken_) context_->TryCancel();
    }
    reader.join();
    const absl::Status status = FromGrpc(stream->Finish());
    {
      const std::lock_guard lock(mutex_);
      context_.reset();
    }
    changed_.notify_all();
    if (IsFinal(status)) Refuse(status);
  }

  void Write(Stream& stream) {
    int64_t next_heartbeat_ms = BootTimeMs();
    while (true) {
      std::vector<proto::AgentReport> batch;
      {
        std::unique_lock lock(mutex_);
        const int64_t wait_ms = std::max<int64_t>(0, next_heartbeat_ms - BootTimeMs());
        changed_.wait_for(lock, milliseconds(wait_ms),
                          [&] { return closing_ || broken_ || sent_ < waiting_.size(); });
        if (closing_ || broken_) return;
        batch.assign(waiting_.begin() + static_cast<std::ptrdiff_t>(sent_), waiting_.end());
        sent_ = waiting_.size();
        if (batch.empty()) batch.emplace_back();  // a heartbeat
        next_heartbeat_ms =
            BootTimeMs() + std::min(kLongestHeartbeatMs, lease_ms_ / kHeartbeatsPerLease);
      }
      for (const proto::AgentReport& report : batch) {
        if (!stream.Write(report)) return;
      }
    }
  }

  void Read(Stream& stream) {
    proto::AgentOrder order;
    while (stream.Read(&order)) {
      const std::lock_guard lock(mutex_);
      heard_ms_ = BootTimeMs();
      Acknowledge(order.acknowledged());
      if (order.has_welcome()) lease_ms_ = std::max<int64_t>(1, order.welcome().lease_ms());
      if (order.order_case() == proto::AgentOrder::ORDER_NOT_SET) continue;
      // The next stream's Hello tells of it, whether or not it has been started by then.
      if (order.has_launch()) {
        hello_.set_generation(std::max(hello_.generation(), order.launch().generation()));
      }
      orders_.push_back(std::move(order));
      Wake();
    }
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
    }
    changed_.notify_all();
  }

  // REQUIRES: mutex_ held.
  void Acknowledge(int64_t sequence) {
    while (!waiting_.empty() && waiting_.front().sequence() <= sequence) {
      waiting_.pop_front();
      if (sent_ > 0) --sent_;
    }
    changed_.notify_all();
  }

  void Refuse(const absl::Status& why) {
    {
      const std::lock_guard lock(mutex_);
      refused_ = why;
    }
    changed_.notify_all();
    Wake();
  }

  void Wake() const {
    const uint64_t one = 1;
    // It fails only where the counter is full, and then it is awake.
    if (write(options_.wake_fd, &one, sizeof(one)) < 0) return;
  }

  const AgentLinkOptions options_;
  mutable std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  proto::Hello hello_;
  std::unique_ptr<grpc::ClientContext> context_;  // of the stream that is open
  std::deque<proto::AgentReport> waiting_;        // not acknowledged; the first `sent_` are sent
  size_t sent_ = 0;
  std::vector<proto::AgentOrder> orders_;
  std::optional<absl::Status> refused_;
  int64_t heard_ms_;
  int64_t lease_ms_ = 8000;
  bool broken_ = false;
  bool closing_ = false;
  std::thread thread_;
};

AgentLink::AgentLink(AgentLinkOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
AgentLink::~AgentLink() = default;

void AgentLink::Say(const proto::AgentReport& report) {
  impl_->Say(report);
}
std::vector<proto::AgentOrder> AgentLink::Take() {
  return impl_->Take();
}
std::optional<absl::Status> AgentLink::refused() const {
  return impl_->refused();
}
void AgentLink::Flush(int64_t timeout_ms) {
  impl_->Flush(timeout_ms);
}

}  // namespace weft
