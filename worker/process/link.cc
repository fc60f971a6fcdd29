#include "worker/process/link.h"

#include <grpcpp/grpcpp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "process/failpoint.h"
#include "process/rpc.h"
#include "process/version.h"
#include "proto/agent.grpc.pb.h"
#include "proto/job_text.h"
#include "proto/wire.h"
#include "worker/process/waiting_reports.h"
#include "worker/train/step_report.h"

namespace weft {
namespace {

using std::chrono::milliseconds;
using Stream = grpc::ClientReaderWriter<proto::WorkerReport, proto::Order>;

constexpr int64_t kFirstHeartbeatMs = 1000;  // until the agent says how often
constexpr milliseconds kRedialEvery{100};
constexpr milliseconds kEndOfStream{500};  // from a failed write to the failed read
// Waits end by a clock that stands still while the host sleeps, so the lease is looked at this
// often.
constexpr int64_t kLookAtLeaseMs = 250;

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

int64_t PeakResidentBytes() {
  rusage usage = {};
  return getrusage(RUSAGE_SELF, &usage) == 0 ? int64_t{usage.ru_maxrss} * 1024 : 0;
}

// The coordinator's refusal of this worker, as against a stream that merely broke.
bool IsFinal(const absl::Status& status) {
  return absl::IsAborted(status) || absl::IsFailedPrecondition(status) ||
         absl::IsInvalidArgument(status) || absl::IsPermissionDenied(status);
}

absl::Status SaveTimeout(const SaveId& save, int64_t timeout_ms) {
  return absl::DeadlineExceededError(absl::StrCat("saving step ", save.step,
                                                  " was not over within ", timeout_ms / 1000,
                                                  " s; some rank did not write its shard"));
}

proto::WorkerReport RegistrationOf(const LinkOptions& options) {
  proto::WorkerReport report;
  report.set_rank(options.rank);
  report.set_generation(options.generation);
  proto::Register& facts = *report.mutable_register_();
  facts.set_host(HostName());
  facts.set_pid(getpid());
  facts.set_version(Version());
  facts.set_world_size(options.world_size);
  return report;
}

}  // namespace

class Link::Impl {
 public:
  explicit Impl(LinkOptions options) : options_(std::move(options)) {}

  absl::Status Start() {
    stop_at_ms_ = options_.now_ms() + options_.patience_ms;
    sender_ = std::thread([this] { Send(); });
    watchdog_ = std::thread([this] { WatchLease(); });
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return welcome_ || lost_; });
    return lost_ ? *lost_ : absl::OkStatus();
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
      if (context_ != nullptr) context_->TryCancel();
    }
    changed_.notify_all();
    if (sender_.joinable()) sender_.join();
    if (watchdog_.joinable()) watchdog_.join();
  }

  // Returns the report's sequence number.
  int64_t Report(proto::WorkerReport report) {
    int64_t sequence = 0;
    {
      const std::lock_guard lock(mutex_);
      sequence = ++last_sequence_;
      report.set_rank(options_.rank);
      report.set_generation(options_.generation);
      report.set_sequence(sequence);
      waiting_.Add(std::move(report));
    }
    changed_.notify_all();
    return sequence;
  }

  // True once every report up to `sequence` is journaled; false after timeout_ms or a loss.
  bool WaitUntilJournaled(int64_t sequence, int64_t timeout_ms) {
    return WaitFor(timeout_ms, [&] { return acknowledged_ >= sequence; });
  }

  absl::StatusOr<Assignment> WaitForTrain() {
    // It ends with the lease at the latest, which the watchdog looks at.
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return train_ || lost_; });
    if (lost_) return *lost_;
    Assignment assignment;
    ASSIGN_OR_RETURN(assignment.job, ParseJobText(train_->job()));
    ASSIGN_OR_RETURN(assignment.layout, FromProto(train_->layout()));
    assignment.generation = options_.generation;
    assignment.run_folder = train_->run_folder();
    assignment.load_checkpoint = train_->load_checkpoint();
    assignment.run = FromProto(train_->run());
    return assignment;
  }

  absl::Status WaitForBegin(int64_t timeout_ms) {
    WaitFor(timeout_ms, [&] { return begin_; });
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    if (begin_) return absl::OkStatus();
    return absl::DeadlineExceededError(
        absl::StrCat("some of the ", options_.world_size, " ranks were not ready within ",
                     timeout_ms / 1000, " s after this one; see their logs"));
  }

  // Empty if the save is over instead.
  absl::StatusOr<std::vector<ShardRecord>> WaitForCommit(const SaveId& save, int64_t timeout_ms) {
    WaitFor(timeout_ms, [&] { return commit_.number() == save.number || IsOver(save); });
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    std::vector<ShardRecord> shards;
    if (IsOver(save)) return shards;
    if (commit_.number() != save.number) return SaveTimeout(save, timeout_ms);
    for (const proto::ShardWritten& shard : commit_.shards()) {
      shards.push_back({shard.file(), shard.bytes(), shard.xxh3()});
    }
    return shards;
  }

  absl::StatusOr<SaveEnd> WaitForSaveOver(const SaveId& save, int64_t timeout_ms) {
    WaitFor(timeout_ms, [&] { return IsOver(save); });
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    if (!IsOver(save)) return SaveTimeout(save, timeout_ms);
    return SaveEnd{save_over_.committed(), save_over_.reason()};
  }

  void SendNote(proto::Note note) {
    {
      const std::lock_guard lock(mutex_);
      proto::WorkerReport& report = own_notes_.emplace_back();
      report.set_rank(options_.rank);
      report.set_generation(options_.generation);
      *report.mutable_note() = std::move(note);
    }
    changed_.notify_all();
  }

  absl::StatusOr<std::string> WaitForNote(const std::string& topic, int from, int64_t timeout_ms) {
    const std::pair<std::string, int> key(topic, from);
    WaitFor(timeout_ms, [&] { return notes_.count(key) > 0; });
    const std::lock_guard lock(mutex_);
    if (lost_) return *lost_;
    const auto found = notes_.find(key);
    if (found != notes_.end()) return found->second;
    return absl::DeadlineExceededError(absl::StrCat("no word of ", topic, " from rank ", from,
                                                    " within ", timeout_ms,
                                                    " ms; its log may say why"));
  }

  void ForgetNotes() {
    const std::lock_guard lock(mutex_);
    own_notes_.clear();
    notes_sent_ = 0;
  }

  bool StopRequested() const {
    const std::lock_guard lock(mutex_);
    return stop_;
  }

  bool TakeSaveWish() {
    const std::lock_guard lock(mutex_);
    return std::exchange(taken_wish_, save_wish_) != save_wish_;
  }

  bool IsCoordinatorAway() const {
    const std::lock_guard lock(mutex_);
    return is_away_;
  }

  bool IsRankZero() const { return options_.rank == 0; }

 private:
  template <typename Condition>
  bool WaitFor(int64_t timeout_ms, Condition condition) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(timeout_ms),
                      [&] { return condition() || lost_ || closing_; });
    return condition();
  }

  // REQUIRES: mutex_ held. No later save begins before all ranks know the end of this one.
  bool IsOver(const SaveId& save) const { return save_over_.number() == save.number; }

  // The sender's thread: one stream after the other until the link closes or is lost.
  void Send() {
    while (!IsOver()) {
      const auto channel = OpenChannel(options_.agent);
      if (channel.ok()) {
        SendOn(*channel);
      } else if (IsFinal(channel.status())) {
        Lose(channel.status());
      }
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kRedialEvery, [&] { return closing_ || lost_; });
    }
  }

  bool IsOver() const {
    const std::lock_guard lock(mutex_);
    return closing_ || lost_;
  }

  // One stream, from its beginning to its end.
  void SendOn(const std::shared_ptr<grpc::Channel>& channel) {
    {
      std::unique_lock lock(mutex_);
      if (closing_ || lost_) return;
      context_ = std::make_unique<grpc::ClientContext>();
      broken_ = false;
      waiting_.BeginStream();
      notes_sent_ = 0;
    }
    const std::unique_ptr<proto::WorkerLink::Stub> stub = proto::WorkerLink::NewStub(channel);
    const std::unique_ptr<Stream> stream = stub->Attach(context_.get());
    std::thread reader([&] { Read(*stream); });
    if (WriteRegister(*stream)) WriteReports(*stream);
    {
      // The reader ends with the stream. If that is the coordinator's doing, its status is on the
      // way and must not be overtaken by a cancellation; otherwise it ends here and now.
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, kEndOfStream, [&] { return broken_ || closing_ || lost_; });
      if (!broken_) context_->TryCancel();
    }
    reader.join();
    const absl::Status status = FromGrpc(stream->Finish());
    {
      const std::lock_guard lock(mutex_);
      context_.reset();
    }
    if (IsFinal(status)) Lose(status);
  }

  bool WriteRegister(Stream& stream) {
    proto::WorkerReport report = RegistrationOf(options_);
    {
      const std::lock_guard lock(mutex_);
      report.set_sequence(register_sequence_ == 0 ? ++last_sequence_ : register_sequence_);
      register_sequence_ = report.sequence();
    }
    return stream.Write(report);
  }

  // Sends what waits, and heartbeats, until the stream breaks or the link closes.
  void WriteReports(Stream& stream) {
    {
      // Nothing is said before the first welcome, which decides whether anybody wants to hear it.
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return welcome_ || closing_ || broken_ || lost_; });
    }
    int64_t last_heartbeat_ms = options_.now_ms();  // the registration
    while (true) {
      std::vector<proto::WorkerReport> batch;
      bool heartbeat = false;
      {
        std::unique_lock lock(mutex_);
        const int64_t heartbeat_every_ms = heartbeat_ms_;
        const int64_t wait_ms = last_heartbeat_ms + heartbeat_every_ms - options_.now_ms();
        changed_.wait_for(lock, milliseconds(std::max<int64_t>(0, wait_ms)), [&] {
          return closing_ || broken_ || lost_ || waiting_.has_unsent() ||
                 notes_sent_ < own_notes_.size() || heartbeat_ms_ != heartbeat_every_ms;
        });
        if (closing_ || broken_ || lost_) return;
        batch = waiting_.TakeUnsent();
        batch.insert(batch.end(), own_notes_.begin() + static_cast<std::ptrdiff_t>(notes_sent_),
                     own_notes_.end());
        notes_sent_ = own_notes_.size();
        heartbeat = options_.now_ms() >= last_heartbeat_ms + heartbeat_ms_;
      }
      for (const proto::WorkerReport& report : batch) {
        if (!stream.Write(report)) return;
      }
      if (!heartbeat) continue;
      proto::WorkerReport beat;
      beat.set_rank(options_.rank);
      beat.set_generation(options_.generation);
      if (!stream.Write(beat)) return;
      last_heartbeat_ms = options_.now_ms();
    }
  }

  // The reader's thread: as long as the stream.
  void Read(Stream& stream) {
    proto::Order order;
    while (stream.Read(&order)) Take(order);
    {
      const std::lock_guard lock(mutex_);
      broken_ = true;
    }
    changed_.notify_all();
  }

  void Take(const proto::Order& order) {
    if (order.generation() != options_.generation && order.generation() != 0) return;
    if (order.has_abort()) {
      Lose(absl::AbortedError(order.abort().reason()));
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      // One that comes too late is left to WatchLease, which finds the end of the one before.
      if (order.has_lease() && options_.now_ms() < stop_at_ms_) {
        const int64_t until_ms = order.lease().stop_at_boot_ms();
        const bool prolongs = has_lease_ && !order.lease().replaces();
        stop_at_ms_ = prolongs ? std::max(stop_at_ms_, until_ms) : until_ms;
        has_lease_ = true;
        is_away_ = order.lease().is_absence();
        heartbeat_ms_ = std::max<int64_t>(1, order.lease().heartbeat_ms());
      }
      Acknowledge(order.acknowledged());
      if (order.has_train()) train_ = order.train();
      if (order.has_begin()) begin_ = true;
      if (order.has_stop()) stop_ = true;
      save_wish_ = std::max(save_wish_, order.save_now().number());
      if (order.has_commit()) commit_ = order.commit();
      if (order.has_save_over()) save_over_ = order.save_over();
      for (const proto::Note& note : order.notes().notes()) {
        notes_[{note.topic(), note.from()}] = note.value();
      }
      if (order.has_welcome()) welcome_ = true;
    }
    changed_.notify_all();
  }

  // REQUIRES: mutex_ held.
  void Acknowledge(int64_t sequence) {
    acknowledged_ = std::max(acknowledged_, sequence);
    waiting_.Acknowledge(acknowledged_);
  }

  // The watchdog's thread. On its own, since the other two may be stuck in a stream whose other end
  // is stopped.
  void WatchLease() {
    std::unique_lock lock(mutex_);
    while (!closing_ && !lost_) {
      const int64_t left_ms = stop_at_ms_ - options_.now_ms();
      if (left_ms > 0) {
        changed_.wait_for(lock, milliseconds(std::min(left_ms, kLookAtLeaseMs)));
        continue;
      }
      const std::string why =
          has_lease_ ? "its host's lease has ended: the agent had no answer from the coordinator"
                     : absl::StrCat("no answer from the agent for ", options_.patience_ms, " ms");
      lock.unlock();
      Lose(absl::UnavailableError(why));
      lock.lock();
    }
  }

  void Lose(const absl::Status& why) {
    {
      const std::lock_guard lock(mutex_);
      if (lost_ || closing_) return;
      lost_ = why;
      if (context_ != nullptr) context_->TryCancel();
    }
    changed_.notify_all();
    if (options_.on_lost) options_.on_lost(why);
  }

  const LinkOptions options_;
  std::thread sender_;
  std::thread watchdog_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::unique_ptr<grpc::ClientContext> context_;  // of the stream that is open
  WaitingReports waiting_;
  std::vector<proto::WorkerReport> own_notes_;  // the first `notes_sent_` are on this stream
  size_t notes_sent_ = 0;
  std::map<std::pair<std::string, int>, std::string> notes_;  // heard, by topic and sender
  int64_t last_sequence_ = 0;
  int64_t register_sequence_ = 0;
  int64_t acknowledged_ = 0;
  int64_t stop_at_ms_ = 0;  // when this worker has to be gone
  bool has_lease_ = false;
  bool is_away_ = false;  // the coordinator, as the newest lease says
  int64_t heartbeat_ms_ = kFirstHeartbeatMs;
  bool welcome_ = false;
  bool broken_ = false;
  bool closing_ = false;
  bool begin_ = false;
  bool stop_ = false;
  int64_t save_wish_ = 0;   // the newest one that has come
  int64_t taken_wish_ = 0;  // the newest one that was done something about
  std::optional<absl::Status> lost_;
  std::optional<proto::Train> train_;
  proto::Commit commit_;       // the newest
  proto::SaveOver save_over_;  // the newest
};

Link::Link(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Link::~Link() = default;

absl::StatusOr<std::unique_ptr<Link>> Link::Attach(LinkOptions options) {
  Failpoint("rank.attach");
  auto impl = std::make_unique<Impl>(std::move(options));
  RETURN_IF_ERROR(impl->Start());
  return std::unique_ptr<Link>(new Link(std::move(impl)));
}

absl::StatusOr<Assignment> Link::WaitForTrain() {
  Failpoint("rank.await_train");
  return impl_->WaitForTrain();
}

void Link::SendNote(absl::string_view topic, absl::Span<const int> to, absl::string_view value) {
  proto::Note note;
  note.set_topic(absl::StrCat(topic));
  for (const int rank : to) note.add_to(rank);
  note.set_value(absl::StrCat(value));
  impl_->SendNote(std::move(note));
}

absl::StatusOr<std::string> Link::WaitForNote(const std::string& topic, int from,
                                              int64_t timeout_ms) {
  return impl_->WaitForNote(topic, from, timeout_ms);
}

void Link::ReportReady(int64_t after_step, int64_t allocated_bytes, int64_t planned_bytes) {
  Failpoint("rank.ready");
  proto::WorkerReport report;
  proto::Ready& ready = *report.mutable_ready();
  ready.set_after_step(after_step);
  ready.set_allocated_bytes(allocated_bytes);
  ready.set_planned_bytes(planned_bytes);
  impl_->ForgetNotes();
  impl_->Report(std::move(report));
}

absl::Status Link::AwaitBegin(int64_t timeout_ms) {
  Failpoint("rank.await_begin");
  return impl_->WaitForBegin(timeout_ms);
}

void Link::ReportStep(const StepReport& report) {
  Failpoint("rank.report_step");
  proto::WorkerReport message;
  proto::StepDone& step = *message.mutable_step();
  step.set_step(report.step);
  step.set_loss(report.loss);
  step.set_grad_norm(report.grad_norm);
  step.set_lr(report.lr);
  step.set_tokens(report.tokens);
  step.set_step_s(report.step_s);
  if (report.valid_loss) step.set_valid_loss(*report.valid_loss);
  step.set_peak_bytes(PeakResidentBytes());
  step.set_stopping(report.stopping);
  step.set_skipped(report.skipped);
  step.set_skipped_steps(report.skipped_steps);
  step.set_loss_scale(report.loss_scale);
  step.set_not_written(report.not_written);
  impl_->Report(std::move(message));
}

absl::StatusOr<std::vector<ShardRecord>> Link::ExchangeShards(
    const SaveId& save, const absl::StatusOr<ShardRecord>& shard, int64_t timeout_ms) {
  if (shard.ok()) {
    proto::WorkerReport report;
    proto::ShardWritten& written = *report.mutable_shard();
    written.set_step(save.step);
    written.set_number(save.number);
    written.set_file(shard->file);
    written.set_bytes(shard->bytes);
    written.set_xxh3(shard->xxh3);
    impl_->Report(std::move(report));
  } else {
    ReportNotCommitted(save, shard.status());
  }
  if (!impl_->IsRankZero()) return std::vector<ShardRecord>();
  return impl_->WaitForCommit(save, timeout_ms);
}

void Link::ReportNotCommitted(const SaveId& save, const absl::Status& why) {
  proto::WorkerReport report;
  proto::SaveFailed& failed = *report.mutable_save_failed();
  failed.set_step(save.step);
  failed.set_number(save.number);
  failed.set_reason(absl::StrCat(why.message()));
  impl_->Report(std::move(report));
}

absl::StatusOr<SaveEnd> Link::AwaitSaveOver(const SaveId& save, int64_t timeout_ms) {
  return impl_->WaitForSaveOver(save, timeout_ms);
}

void Link::ReportCommitted(int64_t step, const std::string& folder, int64_t bytes) {
  Failpoint("rank.report_committed");
  proto::WorkerReport report;
  proto::Committed& committed = *report.mutable_committed();
  committed.set_step(step);
  committed.set_folder(folder);
  committed.set_bytes(bytes);
  impl_->Report(std::move(report));
}

void Link::ReportFinished(const RunResult& result, int64_t timeout_ms) {
  Failpoint("rank.report_finished");
  proto::WorkerReport report;
  report.mutable_finished()->set_step(result.step);
  report.mutable_finished()->set_stopped(result.stopped);
  impl_->WaitUntilJournaled(impl_->Report(std::move(report)), timeout_ms);
}

void Link::ReportFault(const absl::Status& fault, bool loading, int64_t timeout_ms) {
  proto::WorkerReport report;
  report.mutable_fault()->set_code(static_cast<int32_t>(fault.code()));
  report.mutable_fault()->set_message(absl::StrCat(fault.message()));
  report.mutable_fault()->set_loading(loading);
  impl_->WaitUntilJournaled(impl_->Report(std::move(report)), timeout_ms);
}

bool Link::IsCoordinatorAway() const {
  return impl_->IsCoordinatorAway();
}

bool Link::TakeSaveWish() {
  return impl_->TakeSaveWish();
}

bool Link::StopRequested() const {
  return impl_->StopRequested();
}

}  // namespace weft
