#include "coordinator/record.h"

#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/planning.h"
#include "coordinator/preflight_messages.h"
#include "plan/errors.h"
#include "plan/keys/job_rules.h"
#include "plan/spec/layout_rules.h"
#include "proto/job_text.h"
#include "proto/wire.h"

namespace weft {
namespace {

// ---- values of one fact, whatever message it travels in ----

Registered Read(const proto::Register& message, int64_t generation, int rank) {
  return {generation, rank, message.host(), message.pid(), message.version(), message.world_size()};
}

Ready Read(const proto::Ready& message, int64_t generation, int rank) {
  return {generation, rank, message.after_step(), message.allocated_bytes(),
          message.planned_bytes()};
}

ShardWritten Read(const proto::ShardWritten& message, int64_t generation, int rank) {
  return {generation,
          rank,
          message.step(),
          message.number(),
          {message.file(), message.bytes(), message.xxh3()}};
}

SaveFailed Read(const proto::SaveFailed& message, int64_t generation, int rank) {
  return {generation, rank, message.step(), message.number(), message.reason()};
}

Committed Read(const proto::Committed& message, int64_t generation, int rank) {
  return {generation, rank, message.step(), message.folder(), message.bytes()};
}

Finished Read(const proto::Finished& message, int64_t generation, int rank) {
  return {generation, rank, message.step(), message.stopped()};
}

Faulted Read(const proto::Fault& message, int64_t generation, int rank) {
  return {generation, rank, static_cast<absl::StatusCode>(message.code()), message.message(),
          message.loading()};
}

HostShare Read(const proto::HostRanks& message) {
  return {message.machine(),
          message.host(),
          {message.addresses().begin(), message.addresses().end()},
          {message.ranks().begin(), message.ranks().end()}};
}

Launched Read(const proto::Launched& message, int64_t generation) {
  Launched launched{generation};
  for (const proto::HostRanks& host : message.hosts()) launched.shares.push_back(Read(host));
  return launched;
}

// `message`: Planned or PlanRefused.
template <typename Message>
ClusterShape ShapeIn(const Message& message) {
  return {message.nodes(), message.slots_per_node(), message.slot_bytes(), message.host_bytes()};
}

HostOffered Read(const proto::HostOffered& message) {
  return {message.machine(),    message.host(),
          message.slots(),      {message.addresses().begin(), message.addresses().end()},
          message.agent_pid(),  message.gpus(),
          message.cores(),      message.domain(),
          message.free_bytes(), message.gpu_free_bytes(),
          message.gpu_text()};
}

// ---- one function per fact ----

void Fill(const Submitted& fact, proto::Record& record) {
  proto::SubmitJobRequest& message = *record.mutable_submitted();
  message.set_request_id(fact.request_id);
  message.set_job(JobText(fact.spec));
  message.set_run_folder(fact.run_folder);
  if (fact.layout) *message.mutable_layout() = ToProto(*fact.layout);
  message.set_planned_for(fact.planned_for);
  message.set_load_checkpoint(fact.load_checkpoint);
  message.set_after_step(fact.after_step);
  *message.mutable_run() = ToProto(fact.run);
  for (auto older = fact.older.rbegin(); older != fact.older.rend(); ++older) {
    proto::OlderCheckpoint& checkpoint = *message.add_older();
    checkpoint.set_step(older->step);
    checkpoint.set_folder(older->folder);
  }
  message.set_last_generation(fact.last_generation);
  for (const std::string& fingerprint : fact.data) message.add_data(fingerprint);
  message.set_expected_hosts(fact.expected_hosts);
  message.set_slots_as_offered(fact.slots_as_offered);
  message.set_job_id(fact.job_id);
}

// `message`: Planned or PlanRefused.
template <typename Message>
void FillShape(const ClusterShape& shape, Message& message) {
  message.set_nodes(shape.nodes);
  message.set_slots_per_node(shape.slots_per_node);
  message.set_slot_bytes(shape.slot_bytes);
  message.set_host_bytes(shape.host_bytes);
}

void Fill(const Planned& fact, proto::Record& record) {
  *record.mutable_planned()->mutable_layout() = ToProto(fact.layout);
  record.mutable_planned()->set_planned_bytes(fact.planned_bytes);
  record.mutable_planned()->set_predicted_step_s(fact.predicted_step_s);
  record.mutable_planned()->set_note(fact.note);
  FillShape(fact.shape, *record.mutable_planned());
}

void Fill(const PlanRefused& fact, proto::Record& record) {
  record.mutable_plan_refused()->set_code(static_cast<int>(fact.code));
  record.mutable_plan_refused()->set_message(fact.message);
  FillShape(fact.shape, *record.mutable_plan_refused());
}

void Fill(const Launched& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_launched();
  for (const HostShare& share : fact.shares) *record.mutable_launched()->add_hosts() = Write(share);
}

void Fill(const Registered& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  proto::Register& message = *record.mutable_registered();
  message.set_host(fact.host);
  message.set_pid(fact.pid);
  message.set_version(fact.version);
  message.set_world_size(fact.world_size);
}

void Fill(const Ready& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_ready()->set_after_step(fact.after_step);
  record.mutable_ready()->set_allocated_bytes(fact.allocated_bytes);
  record.mutable_ready()->set_planned_bytes(fact.planned_bytes);
}

void Fill(const ShardWritten& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  proto::ShardWritten& message = *record.mutable_shard_written();
  message.set_step(fact.step);
  message.set_file(fact.shard.file);
  message.set_bytes(fact.shard.bytes);
  message.set_xxh3(fact.shard.xxh3);
  message.set_number(fact.number);
}

void Fill(const SaveFailed& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  proto::SaveFailed& message = *record.mutable_save_failed();
  message.set_step(fact.step);
  message.set_number(fact.number);
  message.set_reason(fact.reason);
}

void Fill(const Committed& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_committed()->set_step(fact.step);
  record.mutable_committed()->set_folder(fact.folder);
  record.mutable_committed()->set_bytes(fact.bytes);
}

void Fill(const Finished& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_finished()->set_step(fact.step);
  record.mutable_finished()->set_stopped(fact.stopped);
}

void Fill(const Faulted& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_faulted()->set_code(static_cast<int>(fact.code));
  record.mutable_faulted()->set_message(fact.message);
  record.mutable_faulted()->set_loading(fact.loading);
}

void Fill(const Suspected& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_suspected()->set_reason(fact.reason);
}

void Fill(const WorkerLost& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_worker_lost()->set_reason(fact.reason);
}

void Fill(const Overdue& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_overdue()->set_reason(fact.reason);
}

// `fact`: RankEnded or AttemptEnded.
template <typename Fact>
void FillCause(const Fact& fact, proto::Cause& cause) {
  cause.set_rank(fact.rank);
  cause.set_host(fact.host);
  cause.set_signal(fact.signal);
  cause.set_exit_code(fact.exit_code);
  cause.set_message(fact.message);
  cause.set_last_stderr(fact.last_stderr);
}

void Fill(const RankEnded& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_rank_ended()->set_generation(fact.generation);
  FillCause(fact, *record.mutable_rank_ended()->mutable_cause());
  record.mutable_rank_ended()->mutable_cause()->set_lost_lease(fact.lost_lease);
}

void Fill(const AttemptEnded& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  proto::GroupEnded& message = *record.mutable_attempt_ended();
  message.set_generation(fact.generation);
  message.set_clean(fact.clean);
  message.set_machine(fact.machine);
  FillCause(fact, *message.mutable_cause());
}

void Fill(const HostOffered& fact, proto::Record& record) {
  proto::HostOffered& message = *record.mutable_host_offered();
  message.set_machine(fact.machine);
  message.set_host(fact.host);
  message.set_slots(fact.slots);
  for (const std::string& address : fact.addresses) message.add_addresses(address);
  message.set_agent_pid(fact.agent_pid);
  message.set_gpus(fact.gpus);
  message.set_cores(fact.cores);
  message.set_domain(fact.domain);
  message.set_free_bytes(fact.free_bytes);
  message.set_gpu_free_bytes(fact.gpu_free_bytes);
  message.set_gpu_text(fact.gpu_text);
}

void Fill(const HostChecked& fact, proto::Record& record) {
  *record.mutable_host_checked() = MessageOf(fact);
}

void Fill(const HostAway& fact, proto::Record& record) {
  record.mutable_host_away()->set_machine(fact.machine);
}

void Fill(const HostLost& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_host_lost()->set_machine(fact.machine);
  record.mutable_host_lost()->set_reason(fact.reason);
}

void Fill(const HostFenced& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_host_fenced()->set_machine(fact.machine);
  record.mutable_host_fenced()->set_reason(fact.reason);
}

void Fill(const HostLeaves& fact, proto::Record& record) {
  record.mutable_host_leaves()->set_machine(fact.machine);
}

void Fill(const RankSlow& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  record.mutable_rank_slow()->set_host(fact.host);
  record.mutable_rank_slow()->set_share_percent(fact.share_percent);
  record.mutable_rank_slow()->set_times_tenths(fact.times_tenths);
  record.mutable_rank_slow()->set_since_step(fact.since_step);
}

void Fill(const Hung& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.set_rank(fact.rank);
  proto::Hung& message = *record.mutable_hung();
  message.set_host(fact.host);
  message.set_phase(fact.hang.phase);
  message.set_step(fact.hang.step);
  message.set_collective(fact.hang.collective);
  message.set_why(fact.hang.why);
  message.set_waiting(fact.hang.waiting);
  message.set_age_ms(fact.hang.age_ms);
  for (const std::string& file : fact.hang.stacks) message.add_stacks(file);
}

Hung Read(const proto::Hung& message, int64_t generation, int rank) {
  return {.generation = generation,
          .rank = rank,
          .host = message.host(),
          .hang = {.phase = message.phase(),
                   .step = message.step(),
                   .collective = message.collective(),
                   .why = message.why(),
                   .waiting = message.waiting(),
                   .age_ms = message.age_ms(),
                   .stacks = {message.stacks().begin(), message.stacks().end()}}};
}

RankSlow Read(const proto::RankSlow& message, int64_t generation, int rank) {
  return {.generation = generation,
          .rank = rank,
          .host = message.host(),
          .share_percent = message.share_percent(),
          .times_tenths = message.times_tenths(),
          .since_step = message.since_step()};
}

void Fill(const HostsAwaited& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_hosts_awaited();
}

void Fill(const LaunchWaits& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_launch_waits()->set_reason(fact.reason);
}

void Fill(const MoreHosts& fact, proto::Record& record) {
  record.set_generation(fact.generation);
  record.mutable_more_hosts();
}

void Fill(const StopAsked& fact, proto::Record& record) {
  record.mutable_stop_asked()->set_now(fact.now);
}

void Fill(const CheckpointAsked&, proto::Record& record) {
  record.mutable_checkpoint_asked();
}

void Fill(const Restarted&, proto::Record& record) {
  record.mutable_restarted();
}

std::optional<Event> ReadHostFact(const proto::Record& record) {
  switch (record.fact_case()) {
    case proto::Record::kHostOffered:
      return Read(record.host_offered());
    case proto::Record::kHostAway:
      return HostAway{record.host_away().machine()};
    case proto::Record::kHostLost:
      return HostLost{record.generation(), record.host_lost().machine(),
                      record.host_lost().reason()};
    case proto::Record::kRankSlow:
      return Read(record.rank_slow(), record.generation(), record.rank());
    case proto::Record::kHostFenced:
      return HostFenced{record.generation(), record.host_fenced().machine(),
                        record.host_fenced().reason()};
    case proto::Record::kHostLeaves:
      return HostLeaves{record.host_leaves().machine()};
    case proto::Record::kHostsAwaited:
      return HostsAwaited{record.generation()};
    case proto::Record::kLaunchWaits:
      return LaunchWaits{record.generation(), record.launch_waits().reason()};
    case proto::Record::kMoreHosts:
      return MoreHosts{record.generation()};
    case proto::Record::kHostChecked:
      return FactOf(record.host_checked());
    default:
      return std::nullopt;
  }
}

// Nothing if it is another fact than what the coordinator holds against a rank.
std::optional<Event> ReadVerdict(const proto::Record& record) {
  const int64_t generation = record.generation();
  const int rank = record.rank();
  switch (record.fact_case()) {
    case proto::Record::kSuspected:
      return Event(Suspected{generation, rank, record.suspected().reason()});
    case proto::Record::kWorkerLost:
      return Event(WorkerLost{generation, rank, record.worker_lost().reason()});
    case proto::Record::kOverdue:
      return Event(Overdue{generation, record.overdue().reason()});
    case proto::Record::kHung:
      return Event(Read(record.hung(), generation, rank));
    case proto::Record::kRankSlow:
      return Event(Read(record.rank_slow(), generation, rank));
    default:
      return std::nullopt;
  }
}

absl::StatusOr<Event> ReadFact(const proto::Record& record) {
  if (const std::optional<Event> fact = ReadHostFact(record)) return *fact;
  if (const std::optional<Event> fact = ReadVerdict(record)) return *fact;
  const int64_t generation = record.generation();
  const int rank = record.rank();
  switch (record.fact_case()) {
    case proto::Record::kSubmitted: {
      ASSIGN_OR_RETURN(Submitted submitted, FactOf(record.submitted()));
      return Event(std::move(submitted));
    }
    case proto::Record::kPlanned: {
      ASSIGN_OR_RETURN(const Layout layout, FromProto(record.planned().layout()));
      return Event(Planned{layout, record.planned().planned_bytes(),
                           record.planned().predicted_step_s(), record.planned().note(),
                           ShapeIn(record.planned())});
    }
    case proto::Record::kPlanRefused:
      return Event(PlanRefused{static_cast<absl::StatusCode>(record.plan_refused().code()),
                               record.plan_refused().message(), ShapeIn(record.plan_refused())});
    case proto::Record::kLaunched:
      return Event(Read(record.launched(), generation));
    case proto::Record::kRegistered:
      return Event(Read(record.registered(), generation, rank));
    case proto::Record::kReady:
      return Event(Read(record.ready(), generation, rank));
    case proto::Record::kShardWritten:
      return Event(Read(record.shard_written(), generation, rank));
    case proto::Record::kSaveFailed:
      return Event(Read(record.save_failed(), generation, rank));
    case proto::Record::kCommitted:
      return Event(Read(record.committed(), generation, rank));
    case proto::Record::kFinished:
      return Event(Read(record.finished(), generation, rank));
    case proto::Record::kFaulted:
      return Event(Read(record.faulted(), generation, rank));
    case proto::Record::kRankEnded:
      return Event(FactOf(record.rank_ended()));
    case proto::Record::kAttemptEnded:
      return Event(FactOf(record.attempt_ended()));
    case proto::Record::kStopAsked:
      return Event(StopAsked{record.stop_asked().now()});
    case proto::Record::kCheckpointAsked:
      return Event(CheckpointAsked{});
    case proto::Record::kRestarted:
      return Event(Restarted{});
    default:
      return absl::InvalidArgumentError("holds no fact that this version knows");
  }
}

}  // namespace

proto::HostRanks Write(const HostShare& share) {
  proto::HostRanks message;
  message.set_machine(share.machine);
  message.set_host(share.host);
  for (const std::string& address : share.addresses) message.add_addresses(address);
  for (const int rank : share.ranks) message.add_ranks(rank);
  return message;
}

proto::Record ToRecord(const StoredEvent& stored) {
  proto::Record record;
  record.set_revision(stored.revision);
  record.set_unix_ms(stored.unix_ms);
  std::visit([&](const auto& fact) { Fill(fact, record); }, stored.event);
  return record;
}

absl::StatusOr<StoredEvent> FromRecord(const proto::Record& record) {
  absl::StatusOr<Event> event = ReadFact(record);
  if (!event.ok()) {
    return absl::DataLossError(
        absl::StrCat("record ", record.revision(), ": ", event.status().message()));
  }
  return StoredEvent{record.revision(), record.unix_ms(), *std::move(event)};
}

std::optional<Event> FactOf(const proto::WorkerReport& report) {
  const int64_t generation = report.generation();
  const int rank = report.rank();
  switch (report.report_case()) {
    case proto::WorkerReport::kRegister:
      return RegistrationOf(report);
    case proto::WorkerReport::kShard:
      return Read(report.shard(), generation, rank);
    case proto::WorkerReport::kSaveFailed:
      return Read(report.save_failed(), generation, rank);
    case proto::WorkerReport::kCommitted:
      return Read(report.committed(), generation, rank);
    case proto::WorkerReport::kFinished:
      return Read(report.finished(), generation, rank);
    case proto::WorkerReport::kFault:
      return Read(report.fault(), generation, rank);
    case proto::WorkerReport::kReady:
      return Read(report.ready(), generation, rank);
    case proto::WorkerReport::kStep:
    case proto::WorkerReport::kNote:
    case proto::WorkerReport::REPORT_NOT_SET:
      break;
  }
  return std::nullopt;
}

Registered RegistrationOf(const proto::WorkerReport& report) {
  return Read(report.register_(), report.generation(), report.rank());
}

RankEnded FactOf(const proto::RankEnded& report) {
  const proto::Cause& cause = report.cause();
  return {.generation = report.generation(),
          .rank = report.has_cause() ? cause.rank() : -1,
          .host = cause.host(),
          .signal = cause.signal(),
          .exit_code = cause.exit_code(),
          .message = cause.message(),
          .last_stderr = cause.last_stderr(),
          .lost_lease = cause.lost_lease()};
}

AttemptEnded FactOf(const proto::GroupEnded& report) {
  const proto::Cause& cause = report.cause();
  return {.generation = report.generation(),
          .clean = report.clean(),
          .rank = report.has_cause() ? cause.rank() : -1,
          .host = cause.host(),
          .signal = cause.signal(),
          .exit_code = cause.exit_code(),
          .message = cause.message(),
          .last_stderr = cause.last_stderr(),
          .machine = report.machine()};
}

absl::StatusOr<Submitted> FactOf(const proto::SubmitJobRequest& request) {
  Submitted submitted;
  submitted.request_id = request.request_id();
  ASSIGN_OR_RETURN(submitted.spec, ParseJobText(request.job()));
  submitted.run_folder = request.run_folder();
  if (request.has_layout()) {
    ASSIGN_OR_RETURN(submitted.layout, FromProto(request.layout()));
  }
  submitted.planned_for = request.planned_for();
  submitted.load_checkpoint = request.load_checkpoint();
  submitted.after_step = request.after_step();
  submitted.run = FromProto(request.run());
  for (auto older = request.older().rbegin(); older != request.older().rend(); ++older) {
    submitted.older.push_back({older->step(), older->folder()});
  }
  submitted.last_generation = request.last_generation();
  submitted.data = {request.data().begin(), request.data().end()};
  submitted.expected_hosts = request.expected_hosts();
  submitted.slots_as_offered = request.slots_as_offered();
  submitted.job_id = request.job_id();
  return submitted;
}

absl::Status CheckSubmission(const Submitted& submitted) {
  if (submitted.request_id.empty()) {
    return absl::InvalidArgumentError("request_id: is empty; choose one per submission");
  }
  if (!absl::StartsWith(submitted.run_folder, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("run_folder: \"", submitted.run_folder, "\" is not an absolute path"));
  }
  std::vector<SpecIssue> issues = Validate(submitted.spec);
  if (issues.empty()) issues = RunIssues(submitted.spec);
  if (!issues.empty()) {
    return absl::InvalidArgumentError(
        absl::StrJoin(issues, "\n", [](std::string* out, const SpecIssue& issue) {
          absl::StrAppend(out, issue.key, ": ", issue.message);
        }));
  }
  if (!submitted.layout || !IsPlannedFor(submitted.spec.cluster, submitted.planned_for)) {
    return absl::OkStatus();
  }
  return CheckRunnable(submitted.spec.model, submitted.spec.cluster, submitted.spec.batch(),
                       *submitted.layout);
}

}  // namespace weft
