#include "launcher/standing/standing_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/lease_times.h"
#include "launcher/standing/standing_agent.h"
#include "process/clock.h"
#include "process/log.h"
#include "process/rpc.h"
#include "proto/fleet.grpc.pb.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using Stream = grpc::ClientReaderWriter<proto::OfferReport, proto::OfferOrder>;

constexpr milliseconds kEndOfStream{500};  // from a failed write to the failed read

// Dialling again would end likewise.
bool IsFinal(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status) ||
         absl::IsUnauthenticated(status) || absl::IsUnimplemented(status);
}

absl::Status Explained(const absl::Status& status) {
  if (absl::IsAborted(status)) {
    return absl::AbortedError(
        absl::StrCat("another standing agent of this machine has taken this one's place (",
                     status.message(), "); what runs here goes on under that one"));
  }
  if (absl::IsUnimplemented(status)) {
    return absl::FailedPreconditionError(
        absl::StrCat("this weftd takes no hosts from standing agents (", status.message(),
                     "); is --coordinator the address of a weftd that serves a fleet?"));
  }
  return status;
}

}  // namespace

class StandingLink::Impl {
 public:
  explicit Impl(StandingLinkOptions options)
      : options_(std::move(options)), offer_(options_.offer), thread_([this] { Run(); }) {}

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    changed_.notify_all();
    thread_.join();
  }

  void Say(const proto::OfferReport& report) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(report);
    }
    changed_.notify_all();
  }

  void SetRunning(const std::vector<proto::RunningAgent>& running) {
    const std::lock_guard lock(mutex_);
    offer_.mutable_running()->Assign(running.begin(), running.end());
  }

  void SayLeaving() {
    {
      const std::lock_guard lock(mutex_);
      offer_.set_leaves(true);
      offers_again_ = true;
    }
    changed_.notify_all();
  }

  std::vector<proto::OfferOrder> Take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(orders_, {});
  }

  std::optional<absl::Status> refused() const {
    const std::lock_guard lock(mutex_);
    return refused_;
  }

  void CutIfQuiet() {
    const std::lock_guard lock(mutex_);
    if (context_ == nullptr || broken_ || BootTimeMs() < quiet_from_ms_) return;
    LogWarning(absl::StrCat(options_.coordinator, ": no lease for ", lease_ms_,
                            " ms; what runs here goes on, and weftd is dialled again"));
    quiet_from_ms_ = BootTimeMs() + lease_ms_;
    context_->TryCancel();
  }

  void Flush(int64_t timeout_ms) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(timeout_ms),
                      [&] { return waiting_.empty() || refused_ || context_ == nullptr; });
  }

 private:
  // One stream after the other, until it is closed or refused.
  void Run() {
    std::mt19937_64 random{std::random_device{}()};
    std::uniform_real_distribution<double> spread(0, 1);
    int failures = 0;
    while (true) {
      const absl::Status ended = RunStream();
      std::unique_lock lock(mutex_);
      if (closing_) return;
      if (IsFinal(ended)) break;
      failures = std::exchange(had_lease_, false) ? 1 : failures + 1;
      if (failures == 1) {
        LogWarning(absl::StrCat("no stream to weftd at ", options_.coordinator, " (",
                                ended.message(), "); it is dialled again until there is one"));
      }
      changed_.wait_for(lock, milliseconds(RedialMs(failures, spread(random))),
                        [&] { return closing_ || refused_; });
      if (closing_ || refused_) return;
    }
  }

  // Returns how the stream ended.
  absl::Status RunStream() {
    const absl::StatusOr<std::shared_ptr<grpc::Channel>> channel =
        OpenChannel(options_.coordinator, options_.bundle, Listens::kService);
    if (!channel.ok()) return EndOf(channel.status());
    proto::OfferReport offer;
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return absl::CancelledError("closing");
      context_ = std::make_unique<grpc::ClientContext>();
      broken_ = false;
      sent_ = 0;
      quiet_from_ms_ = BootTimeMs() + lease_ms_;
      offers_again_ = false;
      offer = NewOffer();
    }
    const std::unique_ptr<proto::FleetLink::Stub> stub = proto::FleetLink::NewStub(*channel);
    const std::unique_ptr<Stream> stream = stub->Offer(context_.get());
    std::thread reader([&] { Read(*stream); });
    if (stream->Write(offer)) Write(*stream);
    {
      // weftd's status, if it has one, must not be overtaken by a cancellation.
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
    return EndOf(status);
  }

  absl::Status EndOf(const absl::Status& status) {
    if (!IsFinal(status)) return status.ok() ? absl::UnavailableError("it has ended") : status;
    {
      const std::lock_guard lock(mutex_);
      refused_ = Explained(status);
    }
    changed_.notify_all();
    Wake();
    return status;
  }

  void Write(Stream& stream) {
    int64_t last_heartbeat_ms = BootTimeMs();
    while (true) {
      std::vector<proto::OfferReport> batch;
      {
        std::unique_lock lock(mutex_);
        const int64_t next_ms = last_heartbeat_ms + HeartbeatMs(lease_ms_);
        changed_.wait_for(lock, milliseconds(std::max<int64_t>(0, next_ms - BootTimeMs())), [&] {
          return closing_ || broken_ || offers_again_ || sent_ < waiting_.size();
        });
        if (closing_ || broken_) return;
        if (std::exchange(offers_again_, false)) batch.push_back(NewOffer());
        batch.insert(batch.end(), waiting_.begin() + static_cast<std::ptrdiff_t>(sent_),
                     waiting_.end());
        sent_ = waiting_.size();
        if (BootTimeMs() >= next_ms) {
          last_heartbeat_ms = BootTimeMs();
          proto::OfferReport report;
          report.mutable_heartbeat()->set_sent_boot_ms(last_heartbeat_ms);
          batch.insert(batch.begin(), std::move(report));
        }
      }
      for (const proto::OfferReport& report : batch) {
        if (!stream.Write(report)) return;
      }
    }
  }

  void Read(Stream& stream) {
    proto::OfferOrder order;
    while (stream.Read(&order)) {
      const std::lock_guard lock(mutex_);
      Acknowledge(order.acknowledged());
      if (order.has_lease()) TakeLease(order.lease());
      if (order.has_welcome()) LogInfo(absl::StrCat("offered to weftd at ", options_.coordinator));
      orders_.push_back(std::move(order));
      Wake();
    }
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
    }
    changed_.notify_all();
  }

  // The following four REQUIRE: mutex_ held.
  proto::OfferReport NewOffer() const {
    proto::OfferReport report;
    *report.mutable_offer() = offer_;
    report.mutable_offer()->set_sent_boot_ms(BootTimeMs());
    return report;
  }

  void TakeLease(const proto::OfferLease& lease) {
    if (lease.lease_ms() > 0) lease_ms_ = lease.lease_ms();
    quiet_from_ms_ = lease.sent_boot_ms() + lease_ms_;
    had_lease_ = true;
  }

  void Acknowledge(int64_t sequence) {
    while (!waiting_.empty() && waiting_.front().sequence() <= sequence) {
      waiting_.pop_front();
      if (sent_ > 0) --sent_;
    }
    changed_.notify_all();
  }

  void Wake() const {
    const uint64_t one = 1;
    // It fails only where the counter is full, and then it is awake.
    if (write(options_.wake_fd, &one, sizeof(one)) < 0) return;
  }

  const StandingLinkOptions options_;
  mutable std::mutex mutex_;  // guards all below but the thread
  std::condition_variable changed_;
  proto::HostOffer offer_;
  std::unique_ptr<grpc::ClientContext> context_;  // of the stream that is open
  std::deque<proto::OfferReport> waiting_;        // not acknowledged; the first `sent_` are sent
  size_t sent_ = 0;
  std::vector<proto::OfferOrder> orders_;
  std::optional<absl::Status> refused_;
  int64_t lease_ms_ = 8000;    // of the newest lease
  int64_t quiet_from_ms_ = 0;  // then the stream has been without a lease for too long
  bool had_lease_ = false;     // since a stream was dialled last
  bool offers_again_ = false;  // on the stream that is open
  bool broken_ = false;
  bool closing_ = false;
  std::thread thread_;  // last: it uses all of the above
};

StandingLink::StandingLink(StandingLinkOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
StandingLink::~StandingLink() = default;

void StandingLink::Say(const proto::OfferReport& report) {
  impl_->Say(report);
}
void StandingLink::SetRunning(const std::vector<proto::RunningAgent>& running) {
  impl_->SetRunning(running);
}
void StandingLink::SayLeaving() {
  impl_->SayLeaving();
}
std::vector<proto::OfferOrder> StandingLink::Take() {
  return impl_->Take();
}
std::optional<absl::Status> StandingLink::refused() const {
  return impl_->refused();
}
void StandingLink::CutIfQuiet() {
  impl_->CutIfQuiet();
}
void StandingLink::Flush(int64_t timeout_ms) {
  impl_->Flush(timeout_ms);
}

}  // namespace weft
