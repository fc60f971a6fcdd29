#include "coordinator/driver.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "coordinator/record.h"
#include "plan/errors.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxQueued = 200000;
constexpr size_t kMaxHistory = 10000;
constexpr size_t kMaxWatchers = 1000;
constexpr int64_t kTickMs = 50;
constexpr int64_t kStallMs = 500;          // between two ticks: beyond it nobody is to blame
constexpr int64_t kMaxPostponeMs = 10000;  // of a duty that waits for room on the disk
constexpr int kMaxRounds = 16;             // duties that follow from duties

absl::Status Busy() {
  return absl::UnavailableError("the coordinator is busy or closing; ask again");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Driver>> Driver::Start(std::unique_ptr<Journal> journal,
                                                      DriverOptions options) {
  std::unique_ptr<Driver> driver(new Driver(std::move(journal), std::move(options)));
  RETURN_IF_ERROR(driver->Replay());
  if (driver->options_.own_thread) {
    driver->thread_ = std::thread([raw = driver.get()] { raw->Run(); });
  }
  return driver;
}

Driver::Driver(std::unique_ptr<Journal> journal, DriverOptions options)
    : journal_(std::move(journal)), options_(std::move(options)) {}

Driver::~Driver() {
  Close();
}

void Driver::Close() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    closing_ = true;
  }
  wake_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  } else if (!options_.own_thread) {
    RunOnce();
    EndEverything();
  }
}

void Driver::RunOnce() {
  std::deque<std::function<void()>> tasks;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    tasks.swap(queue_);
    queued_bytes_ = 0;
  }
  for (const std::function<void()>& task : tasks) task();
  Tick();
}

absl::Status Driver::Replay() {
  ASSIGN_OR_RETURN(const std::vector<StoredEvent> stored_events, journal_.Replay());
  for (const StoredEvent& stored : stored_events) {
    const Watched before = WatchedPart(job_);
    job_ = Apply(std::move(job_), stored.event);
    if (job_.revision != stored.revision) {
      return absl::InternalError(absl::StrCat("record ", stored.revision,
                                              " of the journal changes nothing when replayed; this "
                                              "is a bug: keep the journal and report it"));
    }
    RememberEvents(before, stored);
  }
  clocks_.generation_since_ms = clocks_.hosts_since_ms = Now();
  clocks_.looked_ms = Now();
  for (const auto& [rank, member] : job_.generation.members) clocks_.heard_ms[rank] = Now();
  leases_.SetLength(LeaseMs());
  for (const HostShare& share : job_.generation.shares) {
    leases_.Assume(share.machine, Now() + LeaseMs());
  }
  if (!stored_events.empty()) {
    LogInfo(absl::StrCat("replayed ", stored_events.size(), " facts: ", job_.id, " is ",
                         PhaseName(job_.phase), ", generation ", job_.generation.number));
  }
  Happened(Restarted{});
  return absl::OkStatus();
}

// ---- the queue ----

bool Driver::Post(std::function<void()> task, int64_t bytes, Room room) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool full =
        queue_.size() >= kMaxQueued || queued_bytes_ + bytes > options_.max_queued_bytes;
    if (closing_ || (full && room == Room::kBounded)) return false;
    queue_.push_back(std::move(task));
    queued_bytes_ += bytes;
  }
  wake_.notify_one();
  return true;
}

void Driver::Run() {
  for (;;) {
    {
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait_for(lock, std::chrono::milliseconds(kTickMs),
                     [&] { return closing_ || !queue_.empty(); });
      if (closing_ && queue_.empty()) break;
    }
    RunOnce();
  }
  EndEverything();
}

// Whatever arrived has been heard before anybody is called silent.
void Driver::Tick() {
  const int64_t now_ms = Now();
  const absl::Status written = journal_.Retry(now_ms);
  if (!written.ok() && !broken_) Break(written);
  clocks_ = ShiftedByStall(std::move(clocks_), now_ms, kStallMs);
  for (const HostShare& share : job_.generation.shares) {
    clocks_.lease_end_ms[share.machine] = leases_.EndOf(share.machine);
  }
  for (const Event& event : Expired(job_, clocks_, now_ms, LeaseMs())) {
    Happened(std::holds_alternative<MoreHosts>(event) ? GrowthOf(job_) : event);
    if (const auto* lost = std::get_if<HostLost>(&event)) SendAway(lost->machine);
  }
  Act();
  LookAtChecks();
  TellSpares();
  PassNotesOn();
  CloseWatchersIfOver();
}

void Driver::EndEverything() {
  const absl::Status why = absl::UnavailableError("the coordinator is closing; ask again");
  for (const auto& [id, agent] : agents_) agent.port.close(why);
  for (const auto& [id, stream] : streams_) stream.port.close(why);
  for (const auto& [id, watcher] : watchers_) watcher.close(why);
  agents_.clear();
  streams_.clear();
  watchers_.clear();
}

// ---- facts ----

void Driver::Happened(const Event& event) {
  if (broken_) return;
  const Watched before = WatchedPart(job_);
  const int64_t revision = job_.revision;
  const int64_t generation = job_.generation.number;
  const GenerationPhase phase = job_.generation.phase;
  const size_t hosts = job_.offers.size();
  job_ = Apply(std::move(job_), event);
  if (job_.revision == revision) return;
  if (job_.offers.size() != hosts) clocks_.hosts_since_ms = Now();
  const StoredEvent stored{job_.revision, absl::ToUnixMillis(absl::Now()), event};
  const absl::Status written = journal_.Append(stored, Now());
  if (!written.ok()) return Break(written);
  if (job_.generation.number != generation) {
    clocks_.heard_ms.clear();
    clocks_.lease_end_ms.clear();
    notes_ = NoteBoard();
  }
  if (job_.generation.number != generation || job_.generation.phase != phase) {
    clocks_.generation_since_ms = Now();
  }
  if (clocks_.save != (job_.generation.saving ? job_.generation.saving->number : 0)) {
    clocks_.save = job_.generation.saving ? job_.generation.saving->number : 0;
    clocks_.save_since_ms = Now();
  }
  if (job_.id != before.job_id) {
    progress_ = {};
    last_step_.reset();
    leases_.SetLength(LeaseMs());
  }
  RememberEvents(before, stored);
  Publish(EventsOf(before, job_, stored));
}

// Memory is ahead of the disk now: nothing may be done on the strength of it.
void Driver::Break(const absl::Status& why) {
  broken_ = true;
  LogError(why.message());
  if (options_.on_broken) options_.on_broken(why);
}

void Driver::RememberEvents(const Watched& before, const StoredEvent& stored) {
  if (job_.id != before.job_id) {
    history_.clear();
    forgotten_revision_ = 0;
  }
  for (proto::JobEvent& event : EventsOf(before, job_, stored))
    history_.push_back(std::move(event));
  while (history_.size() > kMaxHistory) {
    forgotten_revision_ = history_.front().revision();
    history_.pop_front();
  }
}

void Driver::Publish(const std::vector<proto::JobEvent>& events) {
  if (events.empty()) return;
  for (const proto::JobEvent& event : events) {
    if (event.has_phase()) {
      const std::string line =
          absl::StrCat(job_.id, " ", event.phase().phase(), ": ", event.phase().reason());
      job_.phase == Phase::kFailed ? LogError(line) : LogInfo(line);
    } else if (event.has_lost()) {
      LogWarning(absl::StrCat("generation ", event.generation(), ": ", event.lost().reason()));
    } else if (event.has_committed()) {
      LogInfo(absl::StrCat("checkpoint of step ", event.committed().step(), " committed"));
    } else if (event.has_not_saved()) {
      LogWarning(absl::StrCat("step ", event.not_saved().step(), " is not saved: rank ",
                              event.not_saved().rank(), ": ", event.not_saved().reason()));
    }
  }
  for (const auto& [id, watcher] : watchers_) watcher.send(events);
}

// ---- duties ----

void Driver::Act() {
  for (int round = 0; round < kMaxRounds && !broken_; ++round) {
    const int64_t revision = job_.revision;
    for (const Command& command : Decide(job_)) {
      if (Carry(command)) break;  // the job has changed: decide again
    }
    if (job_.revision == revision) return;
  }
}

// A launch has to be known to a successor before it is done, so it waits for room on the disk, but
// not for ever. Who trains does not wait with it.
bool Driver::MayLaunch() {
  if (journal_.behind().ok()) {
    postponed_since_ms_ = 0;
    return true;
  }
  if (postponed_since_ms_ == 0) postponed_since_ms_ = Now();
  if (Now() - postponed_since_ms_ > kMaxPostponeMs) Break(journal_.behind());
  return false;
}

// Does what `command` wants and has not been done yet. True if that changed the job.
bool Driver::Carry(const Command& command) {
  const int64_t revision = job_.revision;
  std::visit([this](const auto& duty) { Do(duty); }, command);
  return job_.revision != revision;
}

void Driver::Do(const StartTraining& start) {
  OrderOnce(start.generation, &Stream::told_train, [&] { return TrainOrder(job_); });
}

void Driver::Do(const BeginSteps& begin) {
  OrderOnce(begin.generation, &Stream::told_begin, [&] { return BeginOrder(job_); });
}

void Driver::Do(const StopTraining& stop) {
  OrderOnce(stop.generation, &Stream::told_stop, [&] { return StopOrder(job_); });
}

void Driver::Do(const GrantCommit& grant) {
  Order(0, [&](Stream& stream) {
    if (stream.told_commit == grant.number) return;
    if (!journal_.behind().ok()) {  // it is tried again at the next interval
      return Happened(
          SaveFailed{grant.generation, 0, grant.step, grant.number,
                     absl::StrCat("it cannot be granted: ", journal_.behind().message())});
    }
    stream.told_commit = grant.number;
    stream.port.send(CommitOrder(job_));
  });
}

void Driver::Do(const EndSave& over) {
  OrderAll(over.generation, [&](Stream& stream) {
    if (std::exchange(stream.told_save_over, over.number) == over.number) return;
    stream.port.send(SaveOverOrder(job_));
  });
}

void Driver::Do(const AbortWorkers& abort) {
  OrderOnce(abort.generation, &Stream::told_abort,
            [&] { return AbortOrder(abort.generation, abort.reason); });
}

void Driver::Order(int rank, const std::function<void(Stream&)>& tell) {
  const auto id = stream_of_rank_.find(rank);
  if (id == stream_of_rank_.end()) return;  // it is told when it comes back
  const auto stream = streams_.find(id->second);
  if (stream == streams_.end() || stream->second.generation != job_.generation.number) return;
  tell(stream->second);
}

void Driver::OrderAll(int64_t generation, const std::function<void(Stream&)>& tell) {
  for (auto& [id, stream] : streams_) {
    if (stream.rank >= 0 && stream.generation == generation) tell(stream);
  }
}

void Driver::OrderOnce(int64_t generation, bool Stream::*told,
                       const std::function<proto::Order()>& order) {
  OrderAll(generation, [&](Stream& stream) {
    if (!std::exchange(stream.*told, true)) stream.port.send(order());
  });
}

void Driver::PassNotesOn() {
  OrderAll(job_.generation.number, [&](Stream& stream) {
    for (;;) {
      const proto::Notes notes = notes_.For(stream.rank, stream.told_notes);
      if (notes.notes().empty()) return;
      stream.told_notes += static_cast<size_t>(notes.notes_size());
      stream.port.send(NotesOrder(stream.generation, notes));
    }
  });
}

bool Driver::IsOverAndGone() const {
  return IsOver(job_.phase) && job_.generation.phase == GenerationPhase::kClosed;
}

void Driver::CloseWatchersIfOver() {
  if (!IsOverAndGone()) return;
  for (const auto& [id, watcher] : watchers_) watcher.close(absl::OkStatus());
  watchers_.clear();
}

int64_t Driver::LeaseMs() const {
  if (options_.lease_ms) return *options_.lease_ms;
  return static_cast<int64_t>(job_.spec.fault_tolerance.heartbeat_timeout_seconds * 1000);
}

// ---- messages: from any thread ----

void Driver::Submit(proto::SubmitJobRequest request, const Reply<proto::SubmitJobReply>& reply) {
  const bool posted =
      Post([this, request = std::move(request), reply] { reply(OnSubmit(request)); });
  if (!posted) reply(Busy());
}

void Driver::GetJob(proto::JobRequest request, const Reply<proto::JobStatus>& reply) {
  const bool posted = Post([this, request = std::move(request), reply] {
    const absl::Status known = CheckJob(request.job_id());
    if (known.ok()) {
      reply(StatusOf(job_, progress_));
    } else {
      reply(known);
    }
  });
  if (!posted) reply(Busy());
}

void Driver::StopJob(proto::StopJobRequest request, const Acknowledge& reply) {
  const bool posted = Post([this, request = std::move(request), reply] {
    const absl::Status known = CheckJob(request.job_id());
    if (known.ok()) Happened(StopAsked{request.now()});
    reply(known);
  });
  if (!posted) reply(Busy());
}

void Driver::Watch(int64_t id, proto::WatchRequest request, WatcherPort port) {
  const auto close = port.close;
  const bool posted = Post([this, id, request = std::move(request), port = std::move(port)] {
    const absl::Status status = OnWatch(id, request, port);
    if (!status.ok()) port.close(status);
  });
  if (!posted) close(Busy());
}

void Driver::Unwatch(int64_t id) {
  Post([this, id] { watchers_.erase(id); });
}

void Driver::Attach(int64_t id, WorkerPort port) {
  const auto close = port.close;
  const bool posted = Post([this, id, port = std::move(port)] { streams_[id].port = port; });
  if (!posted) close(Busy());
}

bool Driver::Report(int64_t id, proto::WorkerReport report) {
  const auto bytes = static_cast<int64_t>(report.ByteSizeLong());
  return Post([this, id, report = std::move(report)] { OnReport(id, report); }, bytes);
}

void Driver::Detach(int64_t id) {
  Post([this, id] { OnDetach(id); }, 0, Room::kAlways);
}

// ---- messages: on the driver's thread ----

absl::Status Driver::CheckJob(const std::string& job_id) const {
  if (job_.id.empty()) return absl::NotFoundError("there is no job yet; submit one");
  if (job_id.empty() || job_id == job_.id) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("job ", job_id, " is not the current one, which is ", job_.id));
}

absl::StatusOr<proto::SubmitJobReply> Driver::OnSubmit(const proto::SubmitJobRequest& request) {
  ASSIGN_OR_RETURN(const Submitted submitted, FactOf(request));
  RETURN_IF_ERROR(CheckSubmission(submitted));
  Happened(submitted);
  Act();
  proto::SubmitJobReply reply;
  reply.set_job_id(job_.id);
  return reply;
}

absl::Status Driver::OnWatch(int64_t id, const proto::WatchRequest& request,
                             const WatcherPort& port) {
  RETURN_IF_ERROR(CheckJob(request.job_id()));
  if (watchers_.size() >= kMaxWatchers) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there are ", kMaxWatchers, " watchers already; close one"));
  }
  if (request.after_revision() < forgotten_revision_) {
    return absl::OutOfRangeError(absl::StrCat("revision ", request.after_revision(),
                                              " is too old; watch after revision ",
                                              forgotten_revision_));
  }
  std::vector<proto::JobEvent> missed;
  for (const proto::JobEvent& event : history_) {
    if (event.revision() > request.after_revision()) missed.push_back(event);
  }
  if (last_step_) missed.push_back(*last_step_);
  if (!missed.empty()) port.send(missed);
  watchers_[id] = port;
  return absl::OkStatus();
}

void Driver::Refuse(int64_t id, const absl::Status& why) {
  const auto stream = streams_.find(id);
  LogWarning(absl::StrCat("a worker is turned away: ", why.message()));
  stream->second.port.close(why);
  streams_.erase(stream);
}

void Driver::OnReport(int64_t id, const proto::WorkerReport& report) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;  // turned away, but it had more to say
  Stream& stream = found->second;
  if (report.has_register_()) {
    OnRegister(id, stream, report);
    return;
  }
  if (stream.rank != report.rank() || stream.generation != report.generation()) {
    Refuse(id, absl::InvalidArgumentError(absl::StrCat(
                   "the stream of rank ", stream.rank, ", generation ", stream.generation,
                   " carries a report of rank ", report.rank(), ", generation ",
                   report.generation(), "; register first, one rank per stream")));
    return;
  }
  if (stream.generation != job_.generation.number) {
    Refuse(id, absl::AbortedError(absl::StrCat("generation ", stream.generation,
                                               " is over; the current one is ",
                                               job_.generation.number)));
    return;
  }
  clocks_.heard_ms[stream.rank] = Now();
  if (report.has_note()) return OnNote(id, report);
  const std::optional<Event> fact = FactOf(report);
  if (fact) Happened(*fact);
  if (broken_) return;
  stream.sequence = std::max(stream.sequence, report.sequence());
  if (report.has_step()) {  // acknowledged with the agent's next heartbeat
    OnStep(report);
    return;
  }
  SendAcknowledgement(stream);
}

void Driver::SendAcknowledgement(Stream& stream) {
  proto::Order order;
  order.set_generation(stream.generation);
  order.set_acknowledged(Acknowledged(stream));
  stream.port.send(order);
}

void Driver::OnRegister(int64_t id, Stream& stream, const proto::WorkerReport& report) {
  const Registered worker = RegistrationOf(report);
  if (worker.version != options_.version) {
    return Refuse(
        id, absl::FailedPreconditionError(absl::StrCat(
                "rank ", worker.rank, " is weft ", worker.version, ", the coordinator is weft ",
                options_.version, "; install the same version everywhere")));
  }
  const absl::Status welcome = CheckRegistration(job_, worker);
  if (!welcome.ok()) return Refuse(id, welcome);
  const auto former = stream_of_rank_.find(worker.rank);
  if (former != stream_of_rank_.end() && former->second != id) {
    const auto old = streams_.find(former->second);  // it redialed before the old stream's end
    if (old != streams_.end() && old->second.generation == worker.generation) {
      old->second.port.close(absl::AbortedError("the worker has opened a newer stream"));
      streams_.erase(old);
    }
  }
  stream.rank = worker.rank;
  stream.generation = worker.generation;
  stream_of_rank_[worker.rank] = id;
  Happened(worker);
  if (broken_) return;
  clocks_.heard_ms[worker.rank] = Now();
  stream.sequence = report.sequence();
  proto::Order order;
  order.set_generation(worker.generation);
  order.set_acknowledged(Acknowledged(stream));
  order.mutable_welcome();
  stream.port.send(order);
}

void Driver::OnNote(int64_t id, const proto::WorkerReport& report) {
  const absl::Status kept = notes_.Put(report.note(), report.rank(), job_.world_size());
  if (!kept.ok()) Refuse(id, kept);
}

void Driver::OnStep(const proto::WorkerReport& report) {
  progress_.peak_bytes = std::max(progress_.peak_bytes, report.step().peak_bytes());
  if (report.rank() != 0) return;
  progress_.step = report.step().step();
  proto::JobEvent event;
  event.set_revision(job_.revision);
  event.set_generation(report.generation());
  event.set_unix_ms(absl::ToUnixMillis(absl::Now()));
  *event.mutable_step() = report.step();
  event.mutable_step()->set_peak_bytes(progress_.peak_bytes);
  for (const auto& [id, watcher] : watchers_) watcher.send({event});
  last_step_ = std::move(event);
}

void Driver::OnDetach(int64_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return;
  const Stream stream = std::move(found->second);
  streams_.erase(found);
  if (stream.rank < 0) return;
  const auto current = stream_of_rank_.find(stream.rank);
  if (current == stream_of_rank_.end() || current->second != id) return;
  stream_of_rank_.erase(current);
  Happened(Suspected{stream.generation, stream.rank, "its stream broke"});
}

}  // namespace weft
