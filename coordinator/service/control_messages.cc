#include "coordinator/service/control_messages.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "coordinator/phases.h"
#include "plan/errors.h"
#include "proto/job_text.h"

namespace weft {
namespace {

constexpr absl::string_view kPrefix = "job-";

// Copies a message into one whose fields have the same names, numbers and types, as a test holds
// them to.
template <typename To, typename From>
To SameFields(const From& from) {
  To to;
  to.ParseFromString(from.SerializeAsString());
  return to;
}

// A job that has not run yet goes on from what came with it.
void FillCheckpoints(const v1::Submission& submission, proto::SubmitJobRequest& request) {
  request.set_after_step(submission.load().step());
  request.set_load_checkpoint(submission.load().folder());
  for (const v1::Submission::Checkpoint& each : submission.older()) {
    proto::OlderCheckpoint& older = *request.add_older();
    older.set_step(each.step());
    older.set_folder(each.folder());
  }
}

void GoOn(const proto::JobStatus& status, proto::SubmitJobRequest& request) {
  request.set_after_step(status.saved(0).step());
  request.set_load_checkpoint(status.saved(0).folder());
  request.clear_older();
  for (int i = 1; i < status.saved_size(); ++i) *request.add_older() = status.saved(i);
  request.set_last_generation(std::max(request.last_generation(), status.generation()));
}

// A resized job is another one to the planner.
absl::Status SetSize(const FleetRequest& asked, proto::SubmitJobRequest& request) {
  ASSIGN_OR_RETURN(JobSpec spec, ParseJobText(request.job()));
  const int least = spec.hosts.least_nodes > 0 ? spec.hosts.least_nodes : spec.cluster.nodes;
  if (spec.cluster.nodes == asked.nodes && least == asked.least_nodes) return absl::OkStatus();
  spec.cluster.nodes = asked.nodes;
  spec.hosts.least_nodes = asked.least_nodes == asked.nodes ? 0 : asked.least_nodes;
  request.set_job(JobText(spec));
  return absl::OkStatus();
}

void FillStatus(const proto::JobStatus& status, v1::Job& message) {
  message.set_generation(status.generation());
  message.set_step(status.step());
  message.set_steps(status.steps());
  message.set_saved_step(status.saved_step());
  message.set_restarts_left(status.restarts_left());
  *message.mutable_layout() = status.layout().properties();
  message.set_planned_bytes(status.planned_bytes());
  message.set_peak_bytes(status.peak_bytes());
  message.set_predicted_step_s(status.predicted_step_s());
}

void FillRequest(const JobEntry& entry, v1::Job& message) {
  const v1::SubmitRequest& request = entry.request;
  message.set_name(request.name());
  message.set_priority(request.priority());
  message.set_run_folder(request.submission().run_folder());
  message.set_file(request.file());
  *message.mutable_overrides() = request.overrides();
  message.set_brings_hosts(request.brings_hosts());
  message.set_submitted_unix_ms(entry.submitted_ms);
}

// Until when a job stays beside hosts that others could use.
std::string AwaitText(const Fleet& fleet, const FleetJob& job, int64_t now_ms) {
  const int64_t until_ms = AwaitsGoneUntilMs(fleet, job, now_ms);
  if (until_ms == 0) return "";
  return absl::StrCat("; its host is not heard: if it is not back in ",
                      (until_ms - now_ms + 999) / 1000, " s, the job goes to other hosts");
}

// Says so of a job that goes on as it is until it can have another size.
std::string ResizeText(const FleetJob& job) {
  if (!job.resized) return "";
  const FleetRequest& asked = job.request;
  const bool is_one = asked.least_nodes == asked.nodes;
  return absl::StrCat("; it is to have ", asked.least_nodes,
                      is_one ? "" : absl::StrCat(" to ", asked.nodes),
                      asked.nodes == 1 ? " host" : " hosts", ", and goes on until they are there");
}

}  // namespace

std::string JobName(int64_t job) {
  return absl::StrCat(kPrefix, job);
}

absl::StatusOr<int64_t> ParseJobName(absl::string_view name) {
  int64_t job = 0;
  const bool is_one = absl::StartsWith(name, kPrefix) &&
                      absl::SimpleAtoi(name.substr(kPrefix.size()), &job) && job > 0 &&
                      JobName(job) == name;
  if (is_one) return job;
  return absl::NotFoundError(absl::StrCat("job \"", name, "\": is none; a job is named as job-17"));
}

bool IsLastPhase(absl::string_view phase) {
  for (int each = 0; each <= static_cast<int>(Phase::kCancelled); ++each) {
    if (PhaseName(static_cast<Phase>(each)) == phase) return IsOver(static_cast<Phase>(each));
  }
  return false;
}

PhaseWords PhaseOf(const FleetJob& job, const JobEntry& entry) {
  const bool is_told = entry.allocation == job.allocation && !entry.status.phase().empty();
  switch (job.phase) {
    case FleetPhase::kQueued:
      return {"QUEUED", ""};
    case FleetPhase::kPaused:
      return {"PAUSED", absl::StrCat("goes on after step ", entry.status.saved_step(),
                                     " once it is resumed")};
    case FleetPhase::kOver:
      return {job.end, job.reason};
    case FleetPhase::kPlaced:
      break;
  }
  if (!is_told) return {"SUBMITTED", "its hosts are being given to it"};
  if (!IsLastPhase(entry.status.phase())) {
    return {entry.status.phase(), absl::StrCat(entry.status.reason(), ResizeText(job))};
  }
  const bool is_saved = entry.status.phase() == "SUSPENDED" && job.stop == FleetStop::kNone;
  const bool goes_on = is_saved || job.moves;
  const std::string so_far =
      goes_on || entry.status.reason().empty() ? "" : absl::StrCat(entry.status.reason(), "; ");
  return {"DRAINING", absl::StrCat(so_far, "its hosts are being given back")};
}

v1::Job JobMessage(const Fleet& fleet, int64_t job, const JobEntry& entry, int64_t queue_place,
                   const std::string& waits_for, int64_t now_ms) {
  const FleetJob& placed = fleet.jobs.at(job);
  v1::Job message;
  message.set_job_id(JobName(job));
  FillRequest(entry, message);
  FillStatus(entry.status, message);
  message.set_owner(placed.request.owner);
  message.set_owner_uid(placed.request.owner_uid);
  const PhaseWords words = PhaseOf(placed, entry);
  message.set_phase(words.phase);
  const std::string reason = words.reason.empty() ? waits_for : words.reason;
  message.set_reason(absl::StrCat(reason, AwaitText(fleet, placed, now_ms)));
  message.set_revision(entry.revision);
  message.set_ended_unix_ms(placed.ended_ms);
  message.set_least_nodes(placed.request.least_nodes);
  message.set_nodes(placed.request.nodes);
  message.set_slots_per_node(placed.request.slots_per_node);
  for (const FleetShare& share : placed.shares) {
    v1::Job::Allocation& allocation = *message.add_allocations();
    allocation.set_machine(share.machine);
    const auto host = fleet.hosts.find(share.machine);
    if (host != fleet.hosts.end()) allocation.set_host(host->second.host);
    allocation.mutable_slots()->Add(share.slots.begin(), share.slots.end());
  }
  message.set_queue_place(static_cast<int32_t>(queue_place));
  return message;
}

v1::Job RunMessage(const proto::JobStatus& status, int64_t owner_uid, const std::string& owner) {
  v1::Job message;
  message.set_job_id(status.job_id());
  message.set_name(status.name());
  message.set_owner(owner);
  message.set_owner_uid(owner_uid);
  message.set_phase(status.phase());
  message.set_reason(status.reason());
  message.set_revision(status.revision());
  message.set_submitted_unix_ms(status.submitted_unix_ms());
  message.set_ended_unix_ms(status.ended_unix_ms());
  FillStatus(status, message);
  message.set_least_nodes(status.least_nodes());
  message.set_nodes(status.nodes());
  message.set_slots_per_node(status.slots_per_node());
  message.set_run_folder(status.run_folder());
  message.set_lost_its_hosts(status.lost_its_hosts());
  message.set_brings_hosts(true);
  return message;
}

v1::HostsReply RunHosts(const proto::JobStatus& status, int64_t owner_uid,
                        const std::string& owner) {
  v1::HostsReply reply;
  reply.set_revision(status.revision());
  for (const proto::HostHeard& heard : status.hosts()) {
    v1::Host& host = *reply.add_hosts();
    host.set_machine(heard.machine());
    host.set_host(heard.host());
    host.set_owner(owner);
    host.set_owner_uid(owner_uid);
    host.set_slots(heard.slots());
    host.set_slots_used(heard.ranks());
    host.set_present(true);
    if (heard.ranks() > 0) host.add_job_ids(status.job_id());
    host.set_cores(heard.cores());
    host.set_gpus(heard.gpus());
    host.set_version(heard.version());
    *host.mutable_addresses() = heard.addresses();
  }
  std::sort(reply.mutable_hosts()->begin(), reply.mutable_hosts()->end(),
            [](const v1::Host& a, const v1::Host& b) { return a.host() < b.host(); });
  return reply;
}

namespace {

std::string WhyNotUsed(const FleetHost& host, int64_t now_ms) {
  if (host.drained) {
    return absl::StrCat("drained: ", host.drain_reason, host.moves ? "; jobs are asked away" : "");
  }
  if (host.leaves) return "leaves: its standing agent was told to end";
  if (host.left_out_until_ms > now_ms) {
    return absl::StrCat("left out for an hour: failed ", kHostFailuresToLeaveOut,
                        " times within one");
  }
  if (!host.present) return "its agent is not heard";
  return host.lacks_tokens
             ? "its standing agent gives no tokens: install this weftd's version there"
             : "";
}

void FillOffer(const proto::HostOffer& offer, v1::Host& message) {
  message.set_cores(offer.host_has().cores());
  message.set_memory_bytes(offer.host_has().memory_bytes());
  message.set_gpus(offer.host_has().gpus_size());
  message.set_version(offer.version());
  *message.mutable_addresses() = offer.host_has().addresses();
}

}  // namespace

v1::Host HostMessage(const Fleet& fleet, const std::string& machine, const proto::HostOffer* offer,
                     int64_t now_ms) {
  const FleetHost& host = fleet.hosts.at(machine);
  v1::Host message;
  message.set_machine(machine);
  message.set_host(host.host);
  message.set_owner(host.owner);
  message.set_owner_uid(host.owner_uid);
  message.mutable_allows()->Add(host.allows.begin(), host.allows.end());
  message.set_slots(host.slots);
  message.set_present(host.present);
  message.set_drained(host.drained);
  message.set_leaving(host.leaves);
  message.set_moves(host.moves);
  if (host.left_out_until_ms > now_ms) message.set_left_out_until_unix_ms(host.left_out_until_ms);
  message.set_reason(WhyNotUsed(host, now_ms));
  message.set_failures(static_cast<int32_t>(
      std::count_if(host.failed_ms.begin(), host.failed_ms.end(),
                    [&](int64_t each) { return each > now_ms - kFailuresWithinMs; })));
  int64_t used = 0;
  for (const auto& [number, job] : fleet.jobs) {
    for (const FleetShare& share : job.shares) {
      if (share.machine != machine) continue;
      used += std::ssize(share.slots);
      message.add_job_ids(JobName(number));
    }
  }
  message.set_slots_used(static_cast<int32_t>(used));
  if (offer != nullptr) FillOffer(*offer, message);
  return message;
}

std::optional<v1::Event> EventMessage(const proto::JobEvent& event) {
  v1::Event message;
  message.set_generation(event.generation());
  message.set_unix_ms(event.unix_ms());
  switch (event.event_case()) {
    case proto::JobEvent::kPhase:
      *message.mutable_phase() = SameFields<v1::PhaseChanged>(event.phase());
      return message;
    case proto::JobEvent::kStep:
      *message.mutable_step() = SameFields<v1::Step>(event.step());
      return message;
    case proto::JobEvent::kCommitted:
      *message.mutable_committed() = SameFields<v1::Committed>(event.committed());
      return message;
    case proto::JobEvent::kLost:
      *message.mutable_lost() = SameFields<v1::RankLost>(event.lost());
      return message;
    case proto::JobEvent::kNotSaved:
      *message.mutable_not_saved() = SameFields<v1::NotSaved>(event.not_saved());
      return message;
    case proto::JobEvent::kHostChecked:
      *message.mutable_host_checked() = SameFields<v1::HostChecked>(event.host_checked());
      return message;
    case proto::JobEvent::kNotWritten:
      *message.mutable_not_written() = SameFields<v1::NotWritten>(event.not_written());
      return message;
    case proto::JobEvent::kRankSlow:
      *message.mutable_rank_slow() = SameFields<v1::SlowRank>(event.rank_slow());
      return message;
    case proto::JobEvent::EVENT_NOT_SET:
      return std::nullopt;
  }
  return std::nullopt;
}

proto::SubmitJobRequest DriverRequestOf(const v1::Submission& submission) {
  proto::SubmitJobRequest request;
  request.set_job(submission.job());
  request.set_run_folder(submission.run_folder());
  if (!submission.layout().empty()) {
    *request.mutable_layout()->mutable_properties() = submission.layout();
  }
  request.set_planned_for(submission.planned_for());
  FillCheckpoints(submission, request);
  *request.mutable_run() = SameFields<proto::RunIdentity>(submission.run());
  *request.mutable_data() = submission.data();
  request.set_last_generation(submission.last_generation());
  request.set_expected_hosts(submission.expected_hosts());
  request.set_slots_as_offered(submission.slots_as_offered());
  return request;
}

absl::StatusOr<proto::SubmitJobRequest> DriverRequest(int64_t job, const FleetJob& placed,
                                                      const JobEntry& entry) {
  proto::SubmitJobRequest request = DriverRequestOf(entry.request.submission());
  request.set_request_id(absl::StrCat(JobName(job), "/", placed.allocation));
  request.set_job_id(JobName(job));
  if (entry.status.saved_size() > 0) GoOn(entry.status, request);
  if (placed.request.brings_hosts) return request;
  request.clear_slots_as_offered();
  request.set_expected_hosts(static_cast<int32_t>(placed.shares.size()));
  RETURN_IF_ERROR(SetSize(placed.request, request));
  return request;
}

}  // namespace weft
