// The fleet driver's part that has to do with hosts: standing agents offer them, and are told which
// jobs' agents are to run there.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/service/control_messages.h"
#include "coordinator/service/fleet_driver.h"
#include "process/log.h"
#include "process/version.h"

namespace weft {
namespace {

constexpr int kMostSlots = 100000;  // as `weft agent --slots`

// Whether a job that is not over has a part of the machine.
bool IsHeld(const Fleet& fleet, const std::string& machine) {
  return std::any_of(fleet.live.begin(), fleet.live.end(), [&](int64_t job) {
    const auto& shares = fleet.jobs.at(job).shares;
    return std::any_of(shares.begin(), shares.end(),
                       [&](const FleetShare& share) { return share.machine == machine; });
  });
}

void SetWhoRuns(const FleetHost& host, const FleetRequest& request, proto::StartAgent* start) {
  const int64_t ranks_uid = RanksUid(host, request);
  if (ranks_uid != host.owner_uid) {
    start->set_ranks_user(request.owner);
    start->set_ranks_uid(ranks_uid);
  }
  start->set_is_of_another(ranks_uid == host.owner_uid && !IsOwner(host, request));
}

absl::Status CheckOffer(const proto::HostOffer& offer) {
  if (offer.wire_version() != kWireVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the agent on ", offer.host(), ", weft ", offer.version(),
                     ", speaks wire version ", offer.wire_version(), ", this weftd speaks ",
                     kWireVersion, "; install versions that speak the same one"));
  }
  if (offer.host().empty() || offer.machine().empty()) {
    return absl::InvalidArgumentError("an agent has to name its host and machine");
  }
  if (offer.slots() < 1 || offer.slots() > kMostSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("slots: ", offer.slots(), " is outside 1 to ", kMostSlots));
  }
  return absl::OkStatus();
}

}  // namespace

// ---- from any thread ----

void FleetDriver::AttachOffer(int64_t id, OfferPort port) {
  const auto close = port.close;
  const bool posted =
      queue_of_tasks_.Post([this, id, port = std::move(port)] { offers_[id].port = port; });
  if (!posted) close(Busy());
}

bool FleetDriver::TakeOffer(int64_t id, proto::OfferReport report) {
  const auto bytes = static_cast<int64_t>(report.ByteSizeLong());
  return queue_of_tasks_.Post([this, id, report = std::move(report)] { OnOfferReport(id, report); },
                              bytes);
}

// The host is not free before its lease has ended: the agents that were started there go on.
void FleetDriver::DetachOffer(int64_t id) {
  const auto forget = [this, id] {
    TakeLeave(id);
    ForgetOffer(id);
  };
  queue_of_tasks_.Post(forget, 0, TaskQueue::Room::kAlways);
}

// ---- on the driver's thread ----

const FleetDriver::Offer* FleetDriver::OfferOf(const std::string& machine) const {
  const auto stream = offer_of_machine_.find(machine);
  return stream == offer_of_machine_.end() ? nullptr : &offers_.at(stream->second);
}

// A host that has said that it leaves, and on which nothing is left, is gone with its stream.
void FleetDriver::TakeLeave(int64_t id) {
  const auto offer = offers_.find(id);
  if (offer == offers_.end() || !offer->second.running.empty()) return;
  const std::string& machine = offer->second.machine;
  const auto current = offer_of_machine_.find(machine);
  if (current == offer_of_machine_.end() || current->second != id) return;
  const auto host = book_.fleet().hosts.find(machine);
  if (host == book_.fleet().hosts.end() || !host->second.present || !host->second.leaves) return;
  proto::FleetRecord record;
  record.mutable_host_gone()->set_machine(machine);
  record.mutable_host_gone()->set_unix_ms(options_.unix_ms());
  Happened(std::move(record));
}

// A machine is never left with a stream that is gone.
void FleetDriver::ForgetOffer(int64_t id) {
  const auto offer = offers_.find(id);
  if (offer == offers_.end()) return;
  const auto current = offer_of_machine_.find(offer->second.machine);
  if (current != offer_of_machine_.end() && current->second == id) offer_of_machine_.erase(current);
  offers_.erase(offer);
}

void FleetDriver::RefuseOffer(int64_t id, const absl::Status& why) {
  LogWarning(absl::StrCat("a standing agent is turned away: ", why.message()));
  leases_.Dismiss(id);
  const auto offer = offers_.find(id);
  if (offer != offers_.end()) offer->second.port.close(why);
  ForgetOffer(id);
}

void FleetDriver::OnOfferReport(int64_t id, const proto::OfferReport& report) {
  const auto found = offers_.find(id);
  if (found == offers_.end()) return;  // turned away, but it had more to say
  Offer& offer = found->second;
  if (report.has_offer()) return OnOffer(id, offer, report.offer());
  if (offer.machine.empty()) {
    return RefuseOffer(id, absl::InvalidArgumentError("an agent has to offer its host first"));
  }
  if (report.has_agent_ended()) OnAgentEnded(offer, report.agent_ended());
  if (report.sequence() == 0) return;
  offer.sequence = std::max(offer.sequence, report.sequence());
  offer.is_due = true;
}

void FleetDriver::OnOffer(int64_t id, Offer& offer, const proto::HostOffer& words) {
  const absl::Status valid = CheckOffer(words);
  if (!valid.ok()) return RefuseOffer(id, valid);
  if (!offer.machine.empty() && offer.machine != words.machine()) {
    return RefuseOffer(id, absl::InvalidArgumentError(absl::StrCat(
                               "machine: ", words.machine(), " is offered on the stream of ",
                               offer.machine, "; a stream is for one, dial anew")));
  }
  const absl::Status theirs = CheckNotOfOthers(words);
  if (!theirs.ok()) return RefuseOffer(id, theirs);
  const auto former = offer_of_machine_.find(words.machine());
  if (former != offer_of_machine_.end() && former->second != id) {
    RefuseOffer(former->second, absl::AbortedError("a newer agent has taken its place"));
  }
  offer_of_machine_[words.machine()] = id;
  offer.machine = words.machine();
  offer.running.clear();
  offer.stopped.clear();
  for (const proto::RunningAgent& each : words.running()) {
    const absl::StatusOr<int64_t> job = ParseJobName(each.job_id());
    if (job.ok()) offer.running.insert({*job, each.allocation()});
  }
  proto::FleetRecord record;
  proto::HostOffer& kept = *record.mutable_host_joined()->mutable_offer();
  kept = words;
  kept.clear_running();
  kept.clear_sent_boot_ms();
  kept.mutable_host_has()->clear_available_bytes();
  const auto known = book_.offers().find(words.machine());
  const auto host = book_.fleet().hosts.find(words.machine());
  const bool is_news = known == book_.offers().end() || host == book_.fleet().hosts.end() ||
                       !host->second.present ||
                       known->second.SerializeAsString() != kept.SerializeAsString();
  LogInfo(absl::StrCat("host ", words.host(), " is offered: ", words.slots(), " slots, owner ",
                       words.owner(), ", ", words.running_size(), " agents run there"));
  if (is_news) Happened(std::move(record));
  leases_.Admit(id, words.machine());
  const std::optional<int64_t> lease_ms = leases_.Grant(id, Now());
  answers_.push_back(
      [port = offer.port, sent = words.sent_boot_ms(), lease_ms](const absl::Status& durable) {
        if (!durable.ok()) return port.close(durable);
        proto::OfferOrder welcome;
        welcome.mutable_welcome();
        port.send(welcome);
        proto::OfferOrder lease;
        lease.mutable_lease()->set_sent_boot_ms(sent);
        lease.mutable_lease()->set_lease_ms(*lease_ms);
        port.send(lease);
      });
}

// A machine that is there, or has a part of a job, is whose it was: of that host, and of that user.
absl::Status FleetDriver::CheckNotOfOthers(const proto::HostOffer& words) const {
  const auto found = book_.fleet().hosts.find(words.machine());
  if (found == book_.fleet().hosts.end()) return absl::OkStatus();
  const FleetHost& host = found->second;
  const bool is_same = host.host == words.host() && host.owner_uid == words.owner_uid();
  if (is_same || (!host.present && !IsHeld(book_.fleet(), words.machine()))) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat(
      "machine ", words.machine(), " is offered already, as another host or by another ",
      "user; come back once it is gone and no job has a part of it"));
}

// One that ends while its job goes on has failed, and is started again in a while.
void FleetDriver::OnAgentEnded(Offer& offer, const proto::AgentEnded& ended) {
  const absl::StatusOr<int64_t> job = ParseJobName(ended.job_id());
  if (!job.ok()) return;
  offer.running.erase({*job, ended.allocation()});
  offer.stopped.erase({*job, ended.allocation()});
  Runner* const runner = FindRunner(*job, ended.allocation());
  if (runner == nullptr || runner->is_over) return;
  LogWarning(absl::StrCat(ended.job_id(), ": its agent on ", offer.machine,
                          " has ended with exit code ", ended.exit_code(), ", signal ",
                          ended.signal(), ": ", ended.last_words()));
  runner->not_before_ms[offer.machine] = Now() + options_.agent_patience_ms;
  if (runner->rights.is_older()) return;  // it was turned away, perhaps
  const auto host = book_.fleet().hosts.find(offer.machine);
  const bool left = ended.exit_code() == 0 && ended.signal() == 0;
  if (left || host == book_.fleet().hosts.end() || host->second.leaves) return;
  proto::FleetRecord record;
  record.mutable_host_failed()->set_machine(offer.machine);
  record.mutable_host_failed()->set_unix_ms(options_.unix_ms());
  record.mutable_host_failed()->set_reason(
      absl::StrCat("the agent of ", ended.job_id(), " ended by itself"));
  Happened(std::move(record));
}

// A host that is lost with a part of a job has failed.
void FleetDriver::LookAtLeases() {
  std::vector<std::string> gone;
  for (const auto& [machine, host] : book_.fleet().hosts) {
    if (host.present && leases_.EndOf(machine) < Now()) gone.push_back(machine);
  }
  for (const std::string& machine : gone) {
    const bool has_failed =
        IsHeld(book_.fleet(), machine) && !book_.fleet().hosts.at(machine).leaves;
    const int64_t now_ms = options_.unix_ms();
    proto::FleetRecord record;
    proto::FleetHostFact& fact =
        has_failed ? *record.mutable_host_failed() : *record.mutable_host_gone();
    fact.set_machine(machine);
    fact.set_unix_ms(now_ms);
    if (has_failed) {
      fact.set_reason("it was not heard any more while jobs had part of it");
      Happened(record);
      record.mutable_host_gone()->set_machine(machine);
      record.mutable_host_gone()->set_unix_ms(now_ms);
    }
    Happened(std::move(record));
    const auto stream = offer_of_machine_.find(machine);
    if (stream == offer_of_machine_.end()) continue;
    RefuseOffer(stream->second, absl::UnavailableError("this host's lease has ended; come back"));
  }
}

void FleetDriver::KeepAgents() {
  for (auto& [id, offer] : offers_) {
    if (offer.machine.empty()) continue;
    if (std::exchange(offer.is_due, false)) {
      proto::OfferOrder order;
      order.set_acknowledged(offer.sequence);
      offer.port.send(order);
    }
    KeepAgentsOf(offer);
  }
}

// Says what is to run there, which is not yet, and stops what is not to.
void FleetDriver::KeepAgentsOf(Offer& offer) {
  std::set<Allocation> wanted;
  for (const auto& [job, runner] : runners_) {
    if (runner.is_over) continue;
    const FleetJob& placed = book_.fleet().jobs.at(job);
    for (const FleetShare& share : placed.shares) {
      if (share.machine != offer.machine) continue;
      const Allocation allocation{job, runner.allocation};
      wanted.insert(allocation);
      const auto wait = runner.not_before_ms.find(offer.machine);
      if (wait != runner.not_before_ms.end() && wait->second > Now()) continue;
      // An agent that comes without a token is not let in: it is started once there is one.
      const FleetHost& host = book_.fleet().hosts.at(share.machine);
      if (host.lacks_tokens || host.leaves) continue;
      if (!offer.running.insert(allocation).second) continue;
      proto::OfferOrder order;
      proto::StartAgent& start = *order.mutable_start_agent();
      start.set_job_id(JobName(job));
      start.set_allocation(runner.allocation);
      start.set_run_id(absl::StrCat(book_.fleet_id(), "-", JobName(job)));
      start.set_run_folder(book_.entry(job).request.submission().run_folder());
      start.set_host_slots(host.slots);
      start.mutable_slots()->Add(share.slots.begin(), share.slots.end());
      start.set_token(runner.rights.TokenFor(share.machine));
      SetWhoRuns(host, placed.request, &start);
      offer.port.send(order);
    }
  }
  for (const Allocation& each : offer.running) {
    if (wanted.count(each) > 0 || !offer.stopped.insert(each).second) continue;
    proto::OfferOrder order;
    proto::StopAgent& stop = *order.mutable_stop_agent();
    stop.set_job_id(JobName(each.first));
    stop.set_allocation(each.second);
    stop.set_reason("the job has no part of this host any more");
    offer.port.send(order);
  }
}

}  // namespace weft
