#include "coordinator/service/fleet_snapshot.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

// `last`: the highest value that there is.
template <typename Enum>
absl::Status ReadEnum(int value, Enum last, Enum* out) {
  if (value < 0 || value > static_cast<int>(last)) {
    return absl::DataLossError(absl::StrCat("the snapshot holds the unknown value ", value));
  }
  *out = static_cast<Enum>(value);
  return absl::OkStatus();
}

void Write(const std::string& machine, const FleetHost& host, const FleetParts& parts,
           proto::FleetSnapshot::Host* message) {
  message->set_machine(machine);
  const auto offer = parts.offers.find(machine);
  if (offer != parts.offers.end()) *message->mutable_offer() = offer->second;
  message->set_present(host.present);
  message->set_gone_ms(host.gone_ms);
  message->set_drained(host.drained);
  message->set_drain_reason(host.drain_reason);
  message->set_moves(host.moves);
  message->mutable_failed_ms()->Add(host.failed_ms.begin(), host.failed_ms.end());
  message->set_left_out_until_ms(host.left_out_until_ms);
}

FleetHost Read(const proto::FleetSnapshot::Host& message) {
  const proto::HostOffer& offer = message.offer();
  FleetHost host;
  host.host = offer.host();
  host.owner = offer.owner();
  host.owner_uid = offer.owner_uid();
  host.allows = {offer.allows().begin(), offer.allows().end()};
  host.slots = offer.slots();
  host.lacks_tokens = !offer.gives_tokens();
  host.starts_as_submitter = offer.starts_as_submitter();
  host.leaves = offer.leaves();
  host.present = message.present();
  host.gone_ms = message.gone_ms();
  host.drained = message.drained();
  host.drain_reason = message.drain_reason();
  host.moves = message.moves();
  host.failed_ms = {message.failed_ms().begin(), message.failed_ms().end()};
  host.left_out_until_ms = message.left_out_until_ms();
  return host;
}

void Write(int64_t number, const FleetJob& job, const JobEntry& entry,
           proto::FleetSnapshot::Job* message) {
  message->set_job(number);
  message->mutable_queued()->set_job(number);
  *message->mutable_queued()->mutable_request() = entry.request;
  WriteRequest(job.request, message->mutable_queued());
  message->set_phase(static_cast<int>(job.phase));
  message->set_place(job.place);
  message->set_after_save(static_cast<int>(job.after_save));
  message->set_stop(static_cast<int>(job.stop));
  message->set_stop_now_ms(job.stop_now_ms);
  message->set_moves(job.moves);
  message->set_resized(job.resized);
  message->set_placed_least_nodes(job.placed_least_nodes);
  message->set_placed_nodes(job.placed_nodes);
  for (const FleetShare& share : job.shares) {
    proto::FleetJobPlaced::Share& each = *message->mutable_placed()->add_shares();
    each.set_machine(share.machine);
    each.mutable_slots()->Add(share.slots.begin(), share.slots.end());
  }
  message->set_allocation(job.allocation);
  message->mutable_ended()->set_end(job.end);
  message->mutable_ended()->set_reason(job.reason);
  message->mutable_ended()->set_unix_ms(job.ended_ms);
  message->set_submitted_ms(entry.submitted_ms);
  message->set_revision(entry.revision);
  message->mutable_newest()->set_allocation(entry.allocation);
  message->mutable_newest()->set_driver_revision(entry.driver_revision);
  *message->mutable_newest()->mutable_status() = entry.status;
}

absl::StatusOr<FleetJob> ReadJob(const proto::FleetSnapshot::Job& message) {
  FleetJob job;
  job.request = ReadRequest(message.queued());
  RETURN_IF_ERROR(ReadEnum(message.phase(), FleetPhase::kOver, &job.phase));
  job.place = message.place();
  RETURN_IF_ERROR(ReadEnum(message.after_save(), AfterSave::kIsQueued, &job.after_save));
  RETURN_IF_ERROR(ReadEnum(message.stop(), FleetStop::kNow, &job.stop));
  job.stop_now_ms = message.stop_now_ms();
  job.moves = message.moves();
  job.resized = message.resized();
  job.placed_least_nodes = message.placed_least_nodes();
  job.placed_nodes = message.placed_nodes();
  for (const proto::FleetJobPlaced::Share& each : message.placed().shares()) {
    job.shares.push_back({each.machine(), {each.slots().begin(), each.slots().end()}});
  }
  job.allocation = message.allocation();
  job.end = message.ended().end();
  job.reason = message.ended().reason();
  job.ended_ms = message.ended().unix_ms();
  return job;
}

JobEntry ReadEntry(const proto::FleetSnapshot::Job& message) {
  return {.request = message.queued().request(),
          .submitted_ms = message.submitted_ms(),
          .revision = message.revision(),
          .status = message.newest().status(),
          .allocation = message.newest().allocation(),
          .driver_revision = message.newest().driver_revision()};
}

}  // namespace

void WriteRequest(const FleetRequest& asked, proto::FleetJobQueued* message) {
  message->set_owner(asked.owner);
  message->set_owner_uid(asked.owner_uid);
  message->set_least_nodes(asked.least_nodes);
  message->set_nodes(asked.nodes);
  message->set_slots_per_node(asked.slots_per_node);
}

FleetRequest ReadRequest(const proto::FleetJobQueued& message) {
  FleetRequest asked;
  asked.owner = message.owner();
  asked.owner_uid = message.owner_uid();
  asked.priority = message.request().priority();
  asked.brings_hosts = message.request().brings_hosts();
  asked.least_nodes = message.least_nodes();
  asked.nodes = message.nodes();
  asked.slots_per_node = message.slots_per_node();
  return asked;
}

void WriteParts(const FleetParts& parts, proto::FleetSnapshot* snapshot) {
  snapshot->set_newest_job(parts.fleet.newest_job);
  snapshot->set_newest_allocation(parts.fleet.newest_allocation);
  snapshot->set_newest_place(parts.fleet.newest_place);
  snapshot->set_fleet_revision(parts.fleet.revision);
  for (const auto& [machine, host] : parts.fleet.hosts) {
    Write(machine, host, parts, snapshot->add_hosts());
  }
  for (const auto& [number, job] : parts.fleet.jobs) {
    Write(number, job, parts.entries.at(number), snapshot->add_jobs());
  }
}

absl::Status ReadParts(const proto::FleetSnapshot& snapshot, FleetParts* parts) {
  *parts = {};
  parts->fleet.newest_job = snapshot.newest_job();
  parts->fleet.newest_allocation = snapshot.newest_allocation();
  parts->fleet.newest_place = snapshot.newest_place();
  parts->fleet.revision = snapshot.fleet_revision();
  for (const proto::FleetSnapshot::Host& each : snapshot.hosts()) {
    parts->fleet.hosts[each.machine()] = Read(each);
    parts->offers[each.machine()] = each.offer();
  }
  for (const proto::FleetSnapshot::Job& each : snapshot.jobs()) {
    ASSIGN_OR_RETURN(const FleetJob job, ReadJob(each));
    if (job.phase == FleetPhase::kOver) {
      parts->fleet.over.emplace(job.ended_ms, each.job());
    } else {
      parts->fleet.live.insert(each.job());
    }
    parts->fleet.jobs[each.job()] = job;
    parts->entries[each.job()] = ReadEntry(each);
  }
  return absl::OkStatus();
}

}  // namespace weft
