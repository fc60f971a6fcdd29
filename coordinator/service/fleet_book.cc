#include "coordinator/service/fleet_book.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/planning.h"
#include "coordinator/record.h"
#include "coordinator/service/control_messages.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int kMostPriority = 1000;

HostJoined Read(const proto::FleetHostJoined& message) {
  const proto::HostOffer& offer = message.offer();
  return {offer.machine(),
          offer.host(),
          offer.owner(),
          offer.owner_uid(),
          {offer.allows().begin(), offer.allows().end()},
          offer.slots(),
          !offer.gives_tokens(),
          offer.starts_as_submitter(),
          offer.leaves()};
}

JobPlaced Read(const proto::FleetJobPlaced& message) {
  JobPlaced placed{message.job()};
  for (const proto::FleetJobPlaced::Share& share : message.shares()) {
    placed.shares.push_back({share.machine(), {share.slots().begin(), share.slots().end()}});
  }
  return placed;
}

// Returns the job that the fact is about; 0: none.
int64_t JobOf(const proto::FleetRecord& record) {
  switch (record.fact_case()) {
    case proto::FleetRecord::kJobQueued:
      return record.job_queued().job();
    case proto::FleetRecord::kJobPlaced:
      return record.job_placed().job();
    case proto::FleetRecord::kJobEnded:
      return record.job_ended().job();
    case proto::FleetRecord::kJobUnwanted:
      return record.job_unwanted().job();
    case proto::FleetRecord::kJobMoves:
      return record.job_moves().job();
    case proto::FleetRecord::kPauseAsked:
      return record.pause_asked().job();
    case proto::FleetRecord::kResumeAsked:
      return record.resume_asked().job();
    case proto::FleetRecord::kStoppedResumed:
      return record.stopped_resumed().job();
    case proto::FleetRecord::kResizeAsked:
      return record.resize_asked().job();
    case proto::FleetRecord::kJobNews:
      return record.job_news().job();
    default:
      return 0;
  }
}

// Erases what `kept` has no key for. Jobs are forgotten about in the order of their numbers, so
// that the first look finds the one that is too many.
template <typename Kept, typename Values>
void KeepKeysOf(const Kept& kept, Values* values) {
  auto key = kept.begin();
  for (auto value = values->begin(); value != values->end() && values->size() > kept.size();) {
    while (key != kept.end() && key->first < value->first) ++key;
    const bool is_kept = key != kept.end() && key->first == value->first;
    value = is_kept ? std::next(value) : values->erase(value);
  }
}

}  // namespace

std::optional<FleetEvent> FactOf(const proto::FleetRecord& record) {
  switch (record.fact_case()) {
    case proto::FleetRecord::kHostJoined:
      return Read(record.host_joined());
    case proto::FleetRecord::kHostGone:
      return HostGone{record.host_gone().machine(), record.host_gone().unix_ms()};
    case proto::FleetRecord::kHostFailed:
      return HostFailed{record.host_failed().machine(), record.host_failed().unix_ms()};
    case proto::FleetRecord::kHostDrained:
      return HostDrained{record.host_drained().machine(), record.host_drained().reason(),
                         record.host_drained().moves()};
    case proto::FleetRecord::kHostUndrained:
      return HostUndrained{record.host_undrained().machine()};
    case proto::FleetRecord::kJobQueued:
      return JobQueued{record.job_queued().job(), ReadRequest(record.job_queued())};
    case proto::FleetRecord::kJobPlaced:
      return Read(record.job_placed());
    case proto::FleetRecord::kJobEnded: {
      const proto::FleetJobEnded& ended = record.job_ended();
      return JobEnded{ended.job(), ended.end(), ended.reason(), ended.unix_ms()};
    }
    case proto::FleetRecord::kJobUnwanted: {
      const proto::FleetJobUnwanted& unwanted = record.job_unwanted();
      return JobUnwanted{unwanted.job(), unwanted.now(), unwanted.save_until_ms(),
                         unwanted.reason(), unwanted.unix_ms()};
    }
    case proto::FleetRecord::kJobMoves:
      return JobMoves{record.job_moves().job()};
    case proto::FleetRecord::kPauseAsked:
      return PauseAsked{record.pause_asked().job()};
    case proto::FleetRecord::kResumeAsked:
      return ResumeAsked{record.resume_asked().job()};
    case proto::FleetRecord::kStoppedResumed:
      return ResumeAsked{record.stopped_resumed().job()};
    case proto::FleetRecord::kResizeAsked: {
      const proto::FleetResizeAsked& asked = record.resize_asked();
      return ResizeAsked{asked.job(), asked.least_nodes(), asked.nodes()};
    }
    case proto::FleetRecord::kJobNews:
    case proto::FleetRecord::kStarted:
    case proto::FleetRecord::FACT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

absl::StatusOr<FleetRequest> RequestOf(const v1::SubmitRequest& request, const std::string& owner,
                                       int64_t owner_uid) {
  if (request.priority() < -kMostPriority || request.priority() > kMostPriority) {
    return absl::InvalidArgumentError(absl::StrCat(
        "priority: ", request.priority(), " is outside -", kMostPriority, " to ", kMostPriority));
  }
  proto::SubmitJobRequest driver = DriverRequestOf(request.submission());
  driver.set_request_id(request.request_id());
  ASSIGN_OR_RETURN(const Submitted submitted, FactOf(driver));
  RETURN_IF_ERROR(CheckSubmission(submitted));
  const JobSpec& spec = submitted.spec;
  FleetRequest asked;
  asked.owner = owner;
  asked.owner_uid = owner_uid;
  asked.priority = request.priority();
  asked.brings_hosts = request.brings_hosts();
  asked.nodes = spec.cluster.nodes;
  asked.least_nodes = spec.hosts.least_nodes > 0 ? spec.hosts.least_nodes : spec.cluster.nodes;
  asked.slots_per_node = spec.cluster.slots_per_node;
  return asked;
}

// ---- what happens ----

absl::Status FleetBook::Take(const proto::FleetRecord& record) {
  if (record.revision() != revision_ + 1) {
    return absl::DataLossError(
        absl::StrCat("record ", record.revision(), " comes after record ", revision_));
  }
  const bool is_known =
      record.fact_case() != proto::FleetRecord::FACT_NOT_SET || record.has_answered();
  if (!is_known) {
    return absl::DataLossError(
        absl::StrCat("record ", record.revision(), " holds no fact that this version knows"));
  }
  revision_ = record.revision();
  if (record.has_started()) {
    fleet_id_ = record.started().fleet_id();
    agent_secret_ = record.started().agent_secret();
    tokens_after_ = record.started().tokens_after_allocation();
    absent_until_ms_ = record.started().absent_until_unix_ms();
    absent_by_boot_ = record.started().absent_by_boot();
  }
  if (record.has_job_news()) {
    TakeNews(record.job_news(), record);
  } else {
    TakeFact(record);
  }
  if (record.has_answered()) Keep(record.answered(), record.unix_ms());
  ForgetWhatIsOver();
  return absl::OkStatus();
}

void FleetBook::TakeFact(const proto::FleetRecord& record) {
  const std::optional<FleetEvent> fact = FactOf(record);
  if (!fact) return;
  if (record.has_host_joined()) {
    proto::HostOffer& offer = parts_.offers[record.host_joined().offer().machine()];
    offer = record.host_joined().offer();
  }
  const int64_t job = JobOf(record);
  if (record.has_job_queued()) {
    JobEntry& entry = parts_.entries[job];
    entry.request = record.job_queued().request();
    entry.submitted_ms = record.unix_ms();
  }
  const auto before = parts_.fleet.jobs.find(job);
  const bool is_new = before == parts_.fleet.jobs.end();
  const FleetPhase phase = is_new ? FleetPhase::kQueued : before->second.phase;
  parts_.fleet = Apply(std::move(parts_.fleet), *fact);
  const auto after = parts_.fleet.jobs.find(job);
  if (after != parts_.fleet.jobs.end()) {
    parts_.entries[job].revision = revision_;
    const bool changed = is_new || phase != after->second.phase;
    if (changed && !record.has_job_placed()) TellPhase(job, record);
  }
  if (record.has_host_joined()) {
    proto::FleetHostFact joined;
    joined.set_machine(record.host_joined().offer().machine());
    const bool leaves = record.host_joined().offer().leaves();
    TellHost(joined, leaves ? "leaves" : "offers itself", record);
  }
  if (record.has_host_gone()) TellHost(record.host_gone(), "is not heard any more", record);
  if (record.has_host_failed()) TellHost(record.host_failed(), "has failed", record);
  if (record.has_host_drained()) TellHost(record.host_drained(), "is drained", record);
  if (record.has_host_undrained()) TellHost(record.host_undrained(), "is used again", record);
}

// Where the job only gives its hosts back, what its Driver says of its end is not the job's.
void FleetBook::TakeNews(const proto::FleetJobNews& news, const proto::FleetRecord& record) {
  const auto job = parts_.fleet.jobs.find(news.job());
  const auto found = parts_.entries.find(news.job());
  if (job == parts_.fleet.jobs.end() || found == parts_.entries.end()) return;
  JobEntry& entry = found->second;
  entry.status = news.status();
  entry.allocation = news.allocation();
  entry.driver_revision = news.driver_revision();
  entry.revision = revision_;
  const PhaseWords words = PhaseOf(job->second, entry);
  for (const proto::JobEvent& each : news.events()) {
    std::optional<v1::Event> message = EventMessage(each);
    if (!message) continue;
    if (message->has_phase() && words.phase != entry.status.phase()) {
      message->mutable_phase()->set_phase(words.phase);
      message->mutable_phase()->set_reason(words.reason);
    }
    v1::Event& event = AddEvent(record);
    const int64_t unix_ms = message->unix_ms();
    message->set_revision(event.revision());
    event = *std::move(message);
    event.set_job_id(JobName(news.job()));
    event.set_unix_ms(unix_ms);
  }
}

int64_t FleetBook::PromiseLeftMs(const std::string& boot, int64_t boot_ms, int64_t unix_ms) const {
  if (absent_until_ms_ == 0) return 0;
  const bool is_of_this_boot = !boot.empty() && absent_by_boot_.boot() == boot;
  return is_of_this_boot ? absent_by_boot_.until_boot_ms() - boot_ms : absent_until_ms_ - unix_ms;
}

proto::FleetSnapshot FleetBook::Snapshot() const {
  proto::FleetSnapshot snapshot;
  snapshot.set_fleet_id(fleet_id_);
  snapshot.set_agent_secret(agent_secret_);
  snapshot.set_tokens_after_allocation(tokens_after_);
  snapshot.set_absent_until_unix_ms(absent_until_ms_);
  if (absent_until_ms_ != 0) *snapshot.mutable_absent_by_boot() = absent_by_boot_;
  WriteParts(parts_, &snapshot);
  for (const auto& [unix_ms, id] : answered_) {
    proto::FleetSnapshot::KeptAnswer& kept = *snapshot.add_answers();
    *kept.mutable_answered() = answers_.at(id);
    kept.set_unix_ms(unix_ms);
  }
  for (const v1::Event& each : events_) *snapshot.add_events() = each;
  snapshot.set_forgotten_revision(forgotten_revision_);
  return snapshot;
}

absl::Status FleetBook::Restore(const proto::FleetSnapshot& snapshot, int64_t revision) {
  *this = {};
  RETURN_IF_ERROR(ReadParts(snapshot, &parts_));
  fleet_id_ = snapshot.fleet_id();
  agent_secret_ = snapshot.agent_secret();
  tokens_after_ = snapshot.tokens_after_allocation();
  absent_until_ms_ = snapshot.absent_until_unix_ms();
  absent_by_boot_ = snapshot.absent_by_boot();
  revision_ = revision;
  for (const proto::FleetSnapshot::KeptAnswer& each : snapshot.answers()) {
    Keep(each.answered(), each.unix_ms());
  }
  events_ = {snapshot.events().begin(), snapshot.events().end()};
  forgotten_revision_ = snapshot.forgotten_revision();
  return absl::OkStatus();
}

// ---- what is told ----

v1::Event& FleetBook::AddEvent(const proto::FleetRecord& record) {
  v1::Event& event = events_.emplace_back();
  event.set_revision(record.revision());
  event.set_unix_ms(record.unix_ms());
  while (events_.size() > kMaxKeptEvents) {
    forgotten_revision_ = events_.front().revision();
    while (events_.front().revision() == forgotten_revision_) events_.pop_front();
  }
  return event;
}

void FleetBook::TellPhase(int64_t job, const proto::FleetRecord& record) {
  const PhaseWords words = PhaseOf(parts_.fleet.jobs.at(job), parts_.entries.at(job));
  v1::Event& event = AddEvent(record);
  event.set_job_id(JobName(job));
  event.set_generation(parts_.entries.at(job).status.generation());
  event.mutable_phase()->set_phase(words.phase);
  event.mutable_phase()->set_reason(words.reason);
}

void FleetBook::TellHost(const proto::FleetHostFact& fact, const std::string& what,
                         const proto::FleetRecord& record) {
  const auto host = parts_.fleet.hosts.find(fact.machine());
  v1::HostChanged& changed = *AddEvent(record).mutable_host();
  if (host != parts_.fleet.hosts.end()) {
    const proto::HostOffer& offer = parts_.offers[fact.machine()];
    *changed.mutable_host() = HostMessage(parts_.fleet, fact.machine(), &offer, record.unix_ms());
  } else {
    changed.mutable_host()->set_machine(fact.machine());
    changed.mutable_host()->set_host(parts_.offers[fact.machine()].host());
  }
  const bool is_left_out = host != parts_.fleet.hosts.end() && record.has_host_failed() &&
                           host->second.left_out_until_ms > record.unix_ms();
  changed.set_what(absl::StrCat(is_left_out ? "is left out for an hour: has failed" : what,
                                fact.reason().empty() ? "" : ": ", fact.reason()));
}

// ---- what is kept ----

const proto::Answered* FleetBook::FindAnswer(const std::string& request_id) const {
  const auto found = answers_.find(request_id);
  return found == answers_.end() ? nullptr : &found->second;
}

void FleetBook::SetReply(const std::string& request_id, const std::string& reply) {
  const auto found = answers_.find(request_id);
  if (found != answers_.end()) found->second.set_reply(reply);
}

void FleetBook::Keep(const proto::Answered& answered, int64_t unix_ms) {
  answers_[answered.request_id()] = answered;
  answered_.emplace_back(unix_ms, answered.request_id());
  while (answered_.size() > kMaxAnswers || answered_.front().first < unix_ms - kAnswerAgeMs) {
    answers_.erase(answered_.front().second);
    answered_.pop_front();
  }
}

// The fleet forgets jobs that are over and hosts that are gone, and so is it here.
void FleetBook::ForgetWhatIsOver() {
  KeepKeysOf(parts_.fleet.jobs, &parts_.entries);
  KeepKeysOf(parts_.fleet.hosts, &parts_.offers);
}

}  // namespace weft
