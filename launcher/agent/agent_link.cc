#include "launcher/agent/agent_link.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "launcher/agent/held_lease.h"
#include "launcher/agent/lease_times.h"
#include "launcher/agent/rank_relay.h"
#include "plan/errors.h"
#include "process/log.h"
#include "process/rpc.h"
#include "proto/agent.grpc.pb.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using Stream = grpc::ClientReaderWriter<proto::AgentReport, proto::AgentOrder>;

constexpr milliseconds kFirstDialEvery{5};  // the coordinator starts beside the agent
constexpr milliseconds kRedialEvery{100};
constexpr milliseconds kEndOfStream{500};  // from a failed write to the failed read
// Words of ranks wait for the stream within this bound; a rank whose words have no room is sent
// away, and comes again with all that was not acknowledged.
constexpr int64_t kMaxEnvelopeBytes = 2 * int64_t{kMaxMessageBytes};

bool IsFinal(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
}

proto::Lease LeaseMessage(const HeldLease::ForRanks& told) {
  proto::Lease lease;
  lease.set_stop_at_boot_ms(told.stop_at_ms);
  lease.set_heartbeat_ms(told.heartbeat_ms);
  lease.set_replaces(told.replaces);
  lease.set_is_absence(told.is_absence);
  return lease;
}

}  // namespace

class AgentLink::Impl {
 public:
  explicit Impl(AgentLinkOptions options)
      : options_(std::move(options)), hello_(options_.hello), heard_ms_(options_.now_ms()) {}

  absl::Status Start() {
    ASSIGN_OR_RETURN(relay_, RankRelay::Start(
                                 options_.rank_socket, options_.now_ms,
                                 [this](const proto::AgentReport& said) { return SendUp(said); },
                                 options_.ranks_user));
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
    relay_.reset();
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

  int64_t lease_end_ms() const {
    const std::lock_guard lock(mutex_);
    return lease_.end_ms();
  }

  int64_t ranks_stop_ms() const {
    const std::lock_guard lock(mutex_);
    return lease_.ranks_stop_ms();
  }

  bool AllIsAcknowledged() const {
    const std::lock_guard lock(mutex_);
    return waiting_.empty();
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
      // The fleet's weftd may be another user's; that of `weft run` is this one's.
      const Listens who = hello_.allocation() > 0 ? Listens::kService : Listens::kThisUser;
      const auto channel = OpenChannel(options_.coordinator, options_.bundle, who);
      if (channel.ok()) {
        first = false;
        RunStream(*channel);
      } else if (IsFinal(channel.status())) {
        Refuse(channel.status());
      }
      std::unique_lock lock(mutex_);
      if (options_.now_ms() - heard_ms_ > HeldLease::kLongestMs) {
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
      lease_.BeginStream();
      sent_ = 0;
      *hello.mutable_hello() = hello_;
      hello.mutable_hello()->set_sent_boot_ms(options_.now_ms());
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
    relay_->Close();  // from here on nothing comes from ranks
    {
      const std::lock_guard lock(mutex_);
      context_.reset();
      envelopes_.clear();
      envelope_bytes_ = 0;
    }
    changed_.notify_all();
    if (IsFinal(status)) Refuse(status);
  }

  void Write(Stream& stream) {
    int64_t last_heartbeat_ms = 0;
    while (true) {
      std::vector<proto::AgentReport> batch;
      bool heartbeat = false;
      {
        std::unique_lock lock(mutex_);
        const int64_t lease_ms = lease_.length_ms();
        const int64_t next_ms = last_heartbeat_ms + HeartbeatMs(lease_ms);
        changed_.wait_for(lock, milliseconds(std::max<int64_t>(0, next_ms - options_.now_ms())),
                          [&] {
                            return closing_ || broken_ || sent_ < waiting_.size() ||
                                   !envelopes_.empty() || asks_ || lease_.length_ms() != lease_ms;
                          });
        if (closing_ || broken_) return;
        // The words of a rank come before the news that it has ended.
        batch.assign(std::make_move_iterator(envelopes_.begin()),
                     std::make_move_iterator(envelopes_.end()));
        envelopes_.clear();
        envelope_bytes_ = 0;
        batch.insert(batch.end(), waiting_.begin() + static_cast<std::ptrdiff_t>(sent_),
                     waiting_.end());
        sent_ = waiting_.size();
        heartbeat = std::exchange(asks_, false) ||
                    options_.now_ms() >= last_heartbeat_ms + HeartbeatMs(lease_.length_ms());
      }
      // First of all: nothing else is as urgent.
      if (heartbeat) {
        last_heartbeat_ms = options_.now_ms();
        if (!stream.Write(Heartbeat())) return;
      }
      for (const proto::AgentReport& report : batch) {
        if (!stream.Write(report)) return;
      }
    }
  }

  proto::AgentReport Heartbeat() {
    proto::AgentReport report;
    report.mutable_heartbeat()->set_sent_boot_ms(options_.now_ms());
    {
      const std::lock_guard lock(mutex_);
      report.mutable_heartbeat()->set_has_promise(lease_.has_promise());
    }
    for (const int64_t rank : relay_->TakeHeard()) report.mutable_heartbeat()->add_heard(rank);
    return report;
  }

  // Takes a rank's words for the stream that is open. False if there is no room.
  bool SendUp(const proto::AgentReport& said) {
    {
      const std::lock_guard lock(mutex_);
      const auto bytes = static_cast<int64_t>(said.ByteSizeLong());
      if (envelope_bytes_ + bytes > kMaxEnvelopeBytes) return false;
      envelope_bytes_ += bytes;
      envelopes_.push_back(said);
    }
    changed_.notify_all();
    return true;
  }

  void TakeLease(const proto::AgentLease& answer) {
    std::optional<HeldLease::ForRanks> told;
    {
      const std::lock_guard lock(mutex_);
      told = lease_.Take(answer.sent_boot_ms(), answer.lease_ms());
      asks_ = IsShort(lease_.end_ms() - options_.now_ms(), answer.lease_ms());
    }
    TellRanks(told);
  }

  // The agent answers with a heartbeat at once.
  void TakeAbsence(const proto::AgentAbsence& absence) {
    std::optional<HeldLease::ForRanks> told;
    {
      const std::lock_guard lock(mutex_);
      told = lease_.TakeAbsence(absence.absent_ms());
      asks_ = true;
    }
    LogInfo(absl::StrCat("the coordinator ends for a while: what runs here may go on for ",
                         absence.absent_ms() / 1000, " s"));
    TellRanks(told);
  }

  void TellRanks(const std::optional<HeldLease::ForRanks>& told) {
    changed_.notify_all();
    if (told) relay_->SetLease(LeaseMessage(*told));
  }

  // Passes on what is not for the agent itself; false if it is.
  bool PassOn(const proto::AgentOrder& order) {
    if (order.has_lease()) {
      TakeLease(order.lease());
    } else if (order.has_absence()) {
      TakeAbsence(order.absence());
    } else if (order.has_to_ranks() || order.has_hang_up()) {
      relay_->TakeOrder(order);
    } else if (order.has_welcome()) {
      relay_->Open();
    } else {
      return false;
    }
    return true;
  }

  void Read(Stream& stream) {
    proto::AgentOrder order;
    while (stream.Read(&order)) {
      const bool passed_on = PassOn(order);
      const std::lock_guard lock(mutex_);
      heard_ms_ = options_.now_ms();
      Acknowledge(order.acknowledged());
      if (passed_on || order.order_case() == proto::AgentOrder::ORDER_NOT_SET) continue;
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
  std::unique_ptr<RankRelay> relay_;  // its lock may be held while ours is taken, not vice versa
  mutable std::mutex mutex_;          // guards all below but the thread
  std::condition_variable changed_;
  proto::Hello hello_;
  std::unique_ptr<grpc::ClientContext> context_;  // of the stream that is open
  std::deque<proto::AgentReport> waiting_;        // not acknowledged; the first `sent_` are sent
  size_t sent_ = 0;
  std::deque<proto::AgentReport> envelopes_;  // what ranks say, for the open stream
  int64_t envelope_bytes_ = 0;
  std::vector<proto::AgentOrder> orders_;
  std::optional<absl::Status> refused_;
  int64_t heard_ms_;
  HeldLease lease_;
  bool asks_ = false;  // for the next one out of turn
  bool broken_ = false;
  bool closing_ = false;
  std::thread thread_;
};

absl::StatusOr<std::unique_ptr<AgentLink>> AgentLink::Start(AgentLinkOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<AgentLink>(new AgentLink(std::move(impl)));
}

AgentLink::AgentLink(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
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
int64_t AgentLink::lease_end_ms() const {
  return impl_->lease_end_ms();
}
int64_t AgentLink::ranks_stop_ms() const {
  return impl_->ranks_stop_ms();
}
bool AgentLink::AllIsAcknowledged() const {
  return impl_->AllIsAcknowledged();
}
void AgentLink::Flush(int64_t timeout_ms) {
  impl_->Flush(timeout_ms);
}

}  // namespace weft
