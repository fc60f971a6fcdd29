#include "coordinator/preflight_messages.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "coordinator/host_memory.h"
#include "coordinator/hosts.h"
#include "coordinator/offered_slots.h"
#include "coordinator/preflight.h"
#include "plan/estimate/goodput.h"
#include "plan/search/space.h"
#include "plan/spec/checkpoint_folder.h"
#include "proto/job_text.h"

namespace weft {
namespace {

HostFinding FindingOf(const proto::CheckResult& message) {
  return {message.name(), static_cast<Severity>(message.severity()), message.found(),
          message.allowed(), message.cure()};
}

void Write(const HostFinding& finding, proto::CheckResult* message) {
  message->set_name(finding.name);
  message->set_severity(static_cast<proto::CheckResult::Severity>(finding.severity));
  message->set_found(finding.found);
  message->set_allowed(finding.allowed);
  message->set_cure(finding.cure);
}

}  // namespace

HostChecked FactOf(const proto::HostChecked& message) {
  HostChecked fact{.round = message.round(),
                   .machine = message.machine(),
                   .host = message.host(),
                   .agent_pid = message.agent_pid(),
                   .pairs_only = message.pairs_only(),
                   .product_flops_per_s = message.product_flops_per_s()};
  for (const proto::CheckResult& result : message.results()) {
    fact.findings.push_back(FindingOf(result));
  }
  for (const proto::Unreached& each : message.unreached()) {
    fact.unreached.push_back({each.machine(), each.host(), each.why()});
  }
  return fact;
}

proto::HostChecked MessageOf(const HostChecked& fact) {
  proto::HostChecked message;
  message.set_round(fact.round);
  message.set_machine(fact.machine);
  message.set_host(fact.host);
  message.set_agent_pid(fact.agent_pid);
  message.set_pairs_only(fact.pairs_only);
  message.set_product_flops_per_s(fact.product_flops_per_s);
  for (const HostFinding& finding : fact.findings) Write(finding, message.add_results());
  for (const UnreachedHost& each : fact.unreached) {
    proto::Unreached& unreached = *message.add_unreached();
    unreached.set_machine(each.machine);
    unreached.set_host(each.host);
    unreached.set_why(each.why);
  }
  return message;
}

std::vector<proto::HostChecked> CheckedEvents(const HostChecked& fact, const Job& after) {
  std::vector<proto::HostChecked> events = {MessageOf(fact)};
  if (LackChecks(after)) return events;
  const Fitness fitness = FitnessOf(after);
  if (fitness.unchecked > 0) return events;
  for (const HostFindings* hosts : {&fitness.unfit, &fitness.slow}) {
    for (const auto& [machine, findings] : *hosts) {
      proto::HostChecked event;
      event.set_machine(machine);
      event.set_host(after.offers.at(machine).host);
      for (const HostFinding& finding : findings) {
        const bool is_of_several = finding.name == "product" || finding.name == "pairs";
        if (is_of_several) Write(finding, event.add_results());
      }
      if (event.results_size() > 0) events.push_back(event);
    }
  }
  return events;
}

proto::AgentOrder CheckHostOrder(const Job& job, const CheckRound& round,
                                 const std::string& machine, const std::string& token,
                                 int64_t now_unix_ms) {
  proto::AgentOrder order;
  proto::CheckHost& check = *order.mutable_check_host();
  check.set_round(round.number());
  check.set_limit_ms(CheckRound::kCheckMs);
  check.set_sent_unix_ms(now_unix_ms);
  check.set_has_peers(round.has_peers());
  check.set_is_alone(job.spec.cluster.nodes + job.spec.hosts.spares == 1);
  check.set_pairs_only(round.parts().at(machine).pairs_only);
  check.set_job(JobText(job.spec));
  if (check.pairs_only()) return order;
  const OfferedHost& offer = job.offers.at(machine);
  check.set_ranks(SlotsOf(offer, job));
  // Where it offers less than was planned for, the next plan is for that.
  check.set_rank_bytes(std::min(job.planned_bytes, SlotBytes(offer, check.ranks(), job.spec)));
  check.set_checkpoint_bytes(CheckpointBytes(QuestionOf(job.spec)));
  check.set_run_folder(job.run_folder);
  check.set_checkpoint_folder(CheckpointFolder(job.spec.checkpoint, job.run_folder));
  check.set_token(token);
  for (const std::string& fingerprint : job.data) check.add_data(fingerprint);
  return order;
}

proto::AgentOrder CheckPeersOrder(const CheckRound& round, const CheckRound::Turn& turn,
                                  const std::string& secret) {
  proto::AgentOrder order;
  proto::CheckPeers& message = *order.mutable_check_peers();
  message.set_round(round.number());
  message.set_secret(secret);
  message.set_dialled_by(turn.dialled_by);
  for (const std::string& machine : turn.peers) {
    const CheckRound::Part& part = round.parts().at(machine);
    proto::CheckPeer& peer = *message.add_peers();
    peer.set_machine(machine);
    peer.set_host(part.host);
    peer.set_address(part.address);
    peer.set_port(part.port);
  }
  return order;
}

proto::AgentOrder ReadAheadOrder(const std::string& folder) {
  proto::AgentOrder order;
  order.mutable_read_ahead()->set_folder(folder);
  return order;
}

HostChecked NotAnswered(const Job& job, const CheckRound& round, const std::string& machine) {
  const OfferedHost& offer = job.offers.at(machine);
  return {.round = round.number(),
          .machine = machine,
          .host = offer.host,
          .agent_pid = offer.agent_pid,
          .findings = {
              {"answer", Severity::kBroken,
               absl::StrCat("its check did not end within ", CheckRound::kAnswerMs / 1000, " s"),
               "", "look at its agent's log, and for a file system there that hangs"}}};
}

}  // namespace weft
