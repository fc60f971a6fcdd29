#include "coordinator/driver.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/caught.h"
#include "coordinator/record.h"
#include "plan/errors.h"
#include "process/failpoint.h"
#include "process/log.h"

namespace weft {
namespace {

constexpr size_t kMaxHistory = 10000;
constexpr size_t kMaxWatchers = 1000;
constexpr int64_t kTickMs = 50;
constexpr int64_t kStallMs = 500;          // between two ticks: beyond it nobody is to blame
constexpr int64_t kMaxPostponeMs = 10000;  // of a duty that waits for room on the disk
constexpr int kMaxRounds = 16;             // duties that follow from duties

// Hosts come and go, and ranks are judged, while ranks stand still.
bool IsNoMotion(const Event& event) {
  return std::holds_alternative<RankSlow>(event) || std::holds_alternative<HostOffered>(event) ||
         std::holds_alternative<HostAway>(event) || std::holds_alternative<HostChecked>(event) ||
         std::holds_alternative<Suspected>(event);
}

absl::Status Busy() {
  return absl::UnavailableError("the coordinator is busy or closing; ask again");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Driver>> Driver::Start(std::unique_ptr<Journal> journal,
                                                      DriverOptions options) {
  std::unique_ptr<Driver> driver(new Driver(std::move(journal), std::move(options)));
  absl::Status replayed;
  RETURN_IF_ERROR(Caught("replaying a job", [&] { replayed = driver->Replay(); }));
  RETURN_IF_ERROR(replayed);
  if (driver->options_.own_thread) {
    driver->thread_ = std::thread([raw = driver.get()] { raw->Run(); });
  }
  return driver;
}

Driver::Driver(std::unique_ptr<Journal> journal, DriverOptions options)
    : journal_(std::move(journal)),
      options_(std::move(options)),
      queue_(options_.max_queued_bytes) {}

Driver::~Driver() {
  Close();
}

void Driver::Close() {
  queue_.Close();
  if (thread_.joinable()) {
    thread_.join();
  } else if (!options_.own_thread) {
    RunOnce();
    EndEverything();
  }
}

void Driver::RunOnce() {
  for (const TaskQueue::Task& task : queue_.Take()) task();
  if (!options_.own_thread || Now() - clocks_.looked_ms >= kTickMs) Tick();
  LookAtChecks();
  JudgeDoubtful();
  WatchForHangs();
  Act();
  TellSpares();
  PassNotesOn();
  CloseWatchersIfOver();
  Settle();
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
    RememberEvents(before, EventsOf(before, job_, stored));
  }
  clocks_.generation_since_ms = clocks_.hosts_since_ms = Now();
  clocks_.looked_ms = Now();
  hangs_.Moved(Now());
  for (const auto& [rank, member] : job_.generation.members.by_rank()) {
    clocks_.heard_ms[rank] = Now();
  }
  leases_.SetLength(LeaseMs());
  for (const HostShare& share : job_.generation.shares) {
    leases_.Assume(share.machine, Now() + LeaseMs());
    if (options_.promised_until_ms > 0) {
      leases_.Promise(share.machine, options_.promised_until_ms + LeaseMs());
    }
  }
  if (!stored_events.empty()) {
    LogInfo(absl::StrCat("replayed ", stored_events.size(), " facts: ", job_.id, " is ",
                         PhaseName(job_.phase), ", generation ", job_.generation.number));
  }
  Failpoint("driver.replayed");
  Happened(Restarted{});
  Settle();
  return absl::OkStatus();
}

void Driver::Run() {
  while (queue_.Wait(kTickMs)) {
    const absl::Status ran = Caught("a round of a job", [this] { RunOnce(); });
    if (!ran.ok() && !broken_) Break(ran);
  }
  EndEverything();
}

// Whatever arrived has been heard before anybody is called silent.
void Driver::Tick() {
  const int64_t now_ms = Now();
  clocks_ = ShiftedByStall(std::move(clocks_), now_ms, kStallMs);
  clocks_.promised.clear();
  for (const HostShare& share : job_.generation.shares) {
    clocks_.lease_end_ms[share.machine] = leases_.EndOf(share.machine);
    if (leases_.HasPromise(share.machine)) clocks_.promised.insert(share.machine);
  }
  for (const Event& event : Expired(job_, clocks_, now_ms, LeaseMs())) {
    Happened(std::holds_alternative<MoreHosts>(event) ? GrowthOf(job_) : event);
    if (const auto* lost = std::get_if<HostLost>(&event)) SendAway(lost->machine);
  }
  if (now_ms > clocks_.none_silent_until_ms) {
    clocks_.none_silent_until_ms = NoneSilentUntil(clocks_, LeaseMs());
  }
}

void Driver::Settle() {
  IsDurable();
  if (broken_) return outgoing_.Drop(absl::UnavailableError("the journal cannot be written"));
  Failpoint("driver.acknowledge");
  AcknowledgeDue();
  Failpoint("driver.send");
  outgoing_.Go();
}

void Driver::EndEverything() {
  const absl::Status why = absl::UnavailableError("the coordinator is closing; ask again");
  for (const auto& [id, agent] : agents_) agent.port->close(why);
  for (const auto& [id, watcher] : watchers_) watcher.close(why);
  agents_.clear();
  streams_.clear();
  watchers_.clear();
}

// ---- facts ----

void Driver::Happened(const Event& event, const StoredEvent* written) {
  if (broken_) return;
  const Watched before = WatchedPart(job_);
  const int64_t revision = job_.revision;
  const int64_t generation = job_.generation.number;
  const GenerationPhase phase = job_.generation.phase;
  const size_t hosts = job_.offers.size();
  job_ = Apply(std::move(job_), event);
  if (job_.revision == revision) return;
  if (job_.offers.size() != hosts) clocks_.hosts_since_ms = Now();
  if (!IsNoMotion(event)) hangs_.Moved(Now());
  const StoredEvent stored =
      written != nullptr ? *written : StoredEvent{job_.revision, options_.unix_ms(), event};
  Failpoint("driver.happened");
  if (written == nullptr) journal_.Add(stored);
  if (job_.generation.number != generation) {
    clocks_.heard_ms.clear();
    clocks_.lease_end_ms.clear();
    clocks_.none_silent_until_ms = 0;
    notes_ = NoteBoard();
    arrivals_.clear();
    hangs_.Forget();
    slow_.Forget();
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
    clocks_.none_silent_until_ms = 0;
    leases_.SetLength(LeaseMs());
  }
  const std::vector<proto::JobEvent> events = EventsOf(before, job_, stored);
  RememberEvents(before, events);
  Publish(events);
}

absl::Status Driver::Wish(const Event& event) {
  if (broken_) return absl::UnavailableError("the journal cannot be written");
  const StoredEvent stored{Apply(job_, event).revision, options_.unix_ms(), event};
  if (stored.revision == job_.revision) return absl::OkStatus();
  const absl::Status written = journal_.Write(stored, Now());
  if (absl::IsUnavailable(written)) return written;
  if (!written.ok()) {
    Break(written);
    return absl::UnavailableError(written.message());
  }
  Happened(event, &stored);
  return absl::OkStatus();
}

// Memory is ahead of the disk now: nothing may be done on the strength of it.
void Driver::Break(const absl::Status& why) {
  broken_ = true;
  LogError(why.message());
  if (options_.on_broken) options_.on_broken(why);
}

void Driver::RememberEvents(const Watched& before, const std::vector<proto::JobEvent>& events) {
  if (job_.id != before.job_id) {
    history_.clear();
    forgotten_revision_ = 0;
    submitted_revision_ = job_.revision;
    submitted_unix_ms_ = events.empty() ? 0 : events.front().unix_ms();
  }
  for (const proto::JobEvent& event : events) {
    if (event.has_phase()) ended_unix_ms_ = IsOver(job_.phase) ? event.unix_ms() : 0;
  }
  history_.insert(history_.end(), events.begin(), events.end());
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
  ToWatchers(events);
}

void Driver::ToWatchers(const std::vector<proto::JobEvent>& events) {
  for (const auto& [id, watcher] : watchers_) SendLater(watcher, events);
}

void Driver::SendLater(const WatcherPort& watcher, const std::vector<proto::JobEvent>& events) {
  std::optional<proto::JobStatus> status;
  const bool is_kept = std::any_of(events.begin(), events.end(),
                                   [](const proto::JobEvent& each) { return !each.has_step(); });
  if (watcher.stands && is_kept) status = StatusOf(job_, progress_);
  outgoing_.Then([watcher, events, status](const absl::Status& durable) {
    if (!durable.ok()) return;
    if (status) watcher.stands(*status);
    watcher.send(events);
  });
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

bool Driver::IsDurable() {
  if (broken_) return false;
  Failpoint("driver.commit");
  const absl::Status written = journal_.Commit(Now());
  Failpoint("driver.committed");
  if (!written.ok()) Break(written);
  return !broken_ && journal_.behind().ok();
}

// A launch has to be known to a successor before it is done, so it waits for room on the disk, but
// not for ever. Who trains does not wait with it.
bool Driver::MayLaunch() {
  if (IsDurable()) {
    postponed_since_ms_ = 0;
    return true;
  }
  if (broken_) return false;
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

bool Driver::IsOverAndGone() const {
  return IsOver(job_.phase) && job_.generation.phase == GenerationPhase::kClosed;
}

void Driver::CloseWatchersIfOver() {
  if (!IsOverAndGone()) return;
  for (const auto& [id, watcher] : watchers_) {
    outgoing_.Then([close = watcher.close](const absl::Status& durable) { close(durable); });
  }
  watchers_.clear();
}

int64_t Driver::LeaseMs() const {
  if (options_.lease_ms) return *options_.lease_ms;
  return static_cast<int64_t>(job_.spec.fault_tolerance.heartbeat_timeout_seconds * 1000);
}

// ---- messages: from any thread ----

void Driver::Submit(proto::SubmitJobRequest request, const Reply<proto::SubmitJobReply>& reply) {
  const bool posted =
      Post([this, request = std::move(request), reply] { AnswerLater(reply, OnSubmit(request)); });
  if (!posted) reply(Busy());
}

void Driver::GetJob(proto::JobRequest request, const Reply<proto::JobStatus>& reply) {
  const bool posted =
      Post([this, request = std::move(request), reply] { AnswerLater(reply, OnGetJob(request)); });
  if (!posted) reply(Busy());
}

void Driver::StopJob(proto::StopJobRequest request, const Acknowledge& reply) {
  const bool posted = Post([this, request = std::move(request), reply] {
    absl::Status asked = CheckJob(request.job_id(), request.expected_revision());
    Failpoint("driver.stop_asked");
    if (asked.ok()) asked = Wish(StopAsked{request.now()});
    // One that was asked before may wait for the disk still.
    if (asked.ok() && request.now()) asked = journal_.behind();
    const bool is_refused = absl::IsNotFound(asked) || absl::IsAborted(asked);
    if (!asked.ok() && !is_refused && request.now() && !broken_) {
      // A job can be ended whatever becomes of the disk; nobody is told OK of it.
      Happened(StopAsked{/*now=*/true});
      asked = absl::UnavailableError(
          absl::StrCat(asked.message(),
                       "; the job is ended at once all the same, but a weftd that "
                       "is started again before would go on with it"));
    }
    outgoing_.Then(
        [reply, asked](const absl::Status& durable) { reply(asked.ok() ? durable : asked); });
  });
  if (!posted) reply(Busy());
}

void Driver::Checkpoint(proto::CheckpointJobRequest request, const Acknowledge& reply) {
  const bool posted = Post([this, request = std::move(request), reply] {
    absl::Status asked = CheckJob(request.job_id(), request.expected_revision());
    if (asked.ok()) asked = Wish(CheckpointAsked{});
    outgoing_.Then(
        [reply, asked](const absl::Status& durable) { reply(asked.ok() ? durable : asked); });
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

// ---- messages: on the driver's thread ----

absl::Status Driver::CheckJob(const std::string& job_id) const {
  if (job_.id.empty()) return absl::NotFoundError("there is no job yet; submit one");
  if (job_id.empty() || job_id == job_.id) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("job ", job_id, " is not the current one, which is ", job_.id));
}

absl::Status Driver::CheckJob(const std::string& job_id, int64_t expected_revision) const {
  RETURN_IF_ERROR(CheckJob(job_id));
  if (expected_revision == 0 || expected_revision == job_.revision) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(job_.id, " is at revision ", job_.revision, ", not at ",
                                         expected_revision,
                                         "; look at it again before you change it"));
}

absl::StatusOr<proto::SubmitJobReply> Driver::OnSubmit(const proto::SubmitJobRequest& request) {
  ASSIGN_OR_RETURN(const Submitted submitted, FactOf(request));
  RETURN_IF_ERROR(CheckSubmission(submitted));
  Failpoint("driver.submitted");
  RETURN_IF_ERROR(Wish(submitted));
  TurnAwayOtherMpi();
  Act();
  proto::SubmitJobReply reply;
  reply.set_job_id(job_.id);
  reply.set_revision(submitted_revision_);
  return reply;
}

proto::HostHeard Driver::HeardOf(const std::string& machine, const Agent& agent) const {
  proto::HostHeard heard;
  heard.set_machine(machine);
  heard.set_host(agent.host);
  heard.set_version(agent.version);
  heard.set_slots(job_.spec.cluster.slots_per_node);
  for (const HostShare& share : job_.generation.shares) {
    if (share.machine == machine) heard.set_ranks(static_cast<int32_t>(share.ranks.size()));
  }
  const auto offer = job_.offers.find(machine);
  if (offer == job_.offers.end()) return heard;
  if (offer->second.slots > 0) heard.set_slots(offer->second.slots);
  heard.set_cores(offer->second.cores);
  heard.set_gpus(offer->second.gpus);
  for (const std::string& address : offer->second.addresses) heard.add_addresses(address);
  return heard;
}

absl::StatusOr<proto::JobStatus> Driver::OnGetJob(const proto::JobRequest& request) const {
  RETURN_IF_ERROR(CheckJob(request.job_id()));
  proto::JobStatus status = StatusOf(job_, progress_);
  for (const auto& [machine, stream] : agent_of_machine_) {
    *status.add_hosts() = HeardOf(machine, agents_.at(stream));
  }
  status.set_run_folder(job_.run_folder);
  status.set_name(job_.spec.name);
  status.set_submitted_unix_ms(submitted_unix_ms_);
  if (IsOverAndGone()) status.set_ended_unix_ms(ended_unix_ms_);
  const Cluster& cluster = job_.spec.cluster;
  const int least_nodes = job_.spec.hosts.least_nodes;
  status.set_least_nodes(least_nodes > 0 ? least_nodes : cluster.nodes);
  status.set_nodes(cluster.nodes);
  status.set_slots_per_node(cluster.slots_per_node);
  status.set_lost_its_hosts(IsLeftByItsHosts(job_));
  return status;
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
  if (!missed.empty()) SendLater(port, missed);
  watchers_[id] = port;
  return absl::OkStatus();
}

}  // namespace weft
