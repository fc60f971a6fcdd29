// The driver's part that has to do with checks of hosts (preflight.h) and with spare hosts.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/driver.h"
#include "coordinator/hosts.h"
#include "coordinator/preflight.h"
#include "coordinator/preflight_messages.h"
#include "plan/spec/checkpoint_folder.h"
#include "process/folder_token.h"
#include "process/log.h"
#include "process/pair_proof.h"

namespace weft {
namespace {

constexpr int64_t kGatherMs = 1000;  // since a host came last: those that come together meet once
constexpr int64_t kLookEveryMs = 250;
constexpr int64_t kMostWaits = 16;  // longest wait for another check, in units of the first one

std::vector<std::string> SharedFolders(const Job& job) {
  return {job.run_folder, CheckpointFolder(job.spec.checkpoint, job.run_folder)};
}

}  // namespace

void Driver::LookAtChecks() {
  if (broken_) return;
  if (round_.is_on()) GoOnWithRound();
  if (round_.is_on()) return;
  const bool waits = job_.generation.phase == GenerationPhase::kOpen;
  if (!waits && Now() < look_at_checks_ms_) return;
  look_at_checks_ms_ = Now() + kLookEveryMs;
  std::vector<std::string> machines = HostsToCheck(job_);
  if (machines.empty()) return CheckAgain();
  const bool gathers = !AllHaveCome(job_) && !job_.generation.waited;
  if (gathers && Now() - clocks_.hosts_since_ms < kGatherMs) return;
  check_again_wait_ms_ = options_.check_again_ms;
  BeginRound(machines);
}

// A full disk is emptied, a folder mounted, a process ended: the same agent finds that out when it
// is told to look again. The wait doubles, so that a host which stays bad costs ever less.
void Driver::CheckAgain() {
  if (check_again_wait_ms_ == 0) {  // the coordinator has been started again
    check_again_wait_ms_ = options_.check_again_ms;
    check_again_at_ms_ = Now() + check_again_wait_ms_;
  }
  if (Now() < check_again_at_ms_) return;
  check_again_at_ms_ = Now() + options_.check_again_ms;
  const std::vector<std::string> machines = HostsToCheckAgain(job_);
  if (machines.empty()) return;
  check_again_wait_ms_ = std::min(2 * check_again_wait_ms_, kMostWaits * options_.check_again_ms);
  BeginRound(machines);
}

void Driver::GoOnWithRound() {
  for (const auto& [machine, part] : round_.parts()) {
    const auto stream = agent_of_machine_.find(machine);
    const bool stays = stream != agent_of_machine_.end() && stream->second == part.stream;
    if (!stays) round_.Done(machine);  // it has a part in the next one
  }
  for (const CheckRound::Turn& turn : round_.ToTell(Now())) {
    if (Agent* const agent = AgentOf(turn.machine)) {
      outgoing_.ToAgent(agent->port, CheckPeersOrder(round_, turn, round_secret_));
    }
  }
  for (const std::string& machine : round_.Silent(Now())) {
    if (!round_.parts().at(machine).pairs_only) Happened(NotAnswered(job_, round_, machine));
    round_.Done(machine);
  }
  if (!round_.IsOver()) return;
  for (const std::string& folder : SharedFolders(job_))
    RemoveToken(folder, round_token_, job_.run_folder);
  round_.End();
  check_again_at_ms_ = Now() + check_again_wait_ms_;
}

// All who are there have a part: those who were checked before meet the new ones.
void Driver::BeginRound(const std::vector<std::string>& machines) {
  std::map<std::string, CheckRound::Part> parts;
  const auto take = [&](const std::string& machine, bool pairs_only) {
    const auto stream = agent_of_machine_.find(machine);
    if (stream == agent_of_machine_.end()) return;
    parts.try_emplace(machine, CheckRound::Part{.host = job_.offers.at(machine).host,
                                                .pairs_only = pairs_only,
                                                .stream = stream->second});
  };
  for (const std::string& machine : machines) take(machine, /*pairs_only=*/false);
  if (parts.empty()) return;
  for (const std::string& machine : FitnessOf(job_).fit) take(machine, /*pairs_only=*/true);
  int64_t number = options_.unix_ms();  // after a restart, too, a new one
  for (const auto& [machine, check] : job_.checks) {
    number = std::max(number, check.pairs_round + 1);
  }
  round_.Begin(number, Now(), std::move(parts));
  round_secret_ = NewSecret();
  round_token_ = options_.writes_tokens ? NewToken() : "";
  for (const std::string& folder : SharedFolders(job_)) {
    if (round_token_.empty()) break;
    const absl::Status written = WriteToken(folder, round_token_, job_.run_folder);
    if (written.ok()) continue;
    LogWarning(absl::StrCat("folders are not compared: ", written.message()));
    for (const std::string& each : SharedFolders(job_))
      RemoveToken(each, round_token_, job_.run_folder);
    round_token_.clear();
  }
  for (const auto& [machine, part] : round_.parts()) {
    outgoing_.ToAgent(AgentOf(machine)->port,
                      CheckHostOrder(job_, round_, machine, round_token_, options_.unix_ms()));
  }
}

void Driver::OnCheckOpened(const Agent& agent, const proto::CheckOpened& opened) {
  if (opened.round() != round_.number()) return;
  round_.Opened(agent.machine, opened.address(), opened.port());
}

void Driver::OnHostChecked(const Agent& agent, const proto::HostChecked& checked) {
  const auto offer = job_.offers.find(agent.machine);
  if (offer == job_.offers.end()) return;
  const auto check = job_.checks.find(agent.machine);  // it may come late
  const int64_t last = check == job_.checks.end() ? 0 : check->second.round;
  if (checked.round() != round_.number() && checked.round() != last) return;
  HostChecked fact = FactOf(checked);
  fact.machine = agent.machine;
  fact.host = agent.host;
  fact.agent_pid = offer->second.agent_pid;
  for (const HostFinding& finding : fact.findings) {
    if (finding.severity == Severity::kWell) continue;
    LogWarning(absl::StrCat("host ", agent.host, ": ", finding.name, ": ", finding.found));
  }
  for (const UnreachedHost& other : fact.unreached) {
    LogWarning(absl::StrCat("host ", agent.host, " does not reach ", other.host, ": ", other.why));
  }
  Happened(fact);
  round_.Done(agent.machine);
}

// Hosts that stand by read what they would start from. Each is told of a checkpoint once.
void Driver::TellSpares() {
  const bool has_spares = job_.spec.hosts.spares > 0 && job_.phase == Phase::kRunning;
  if (!has_spares || job_.newest().folder.empty()) return;
  for (const auto& [machine, offer] : job_.offers) {
    Agent* const agent = AgentOf(machine);
    if (agent == nullptr || FindShare(job_, machine) != nullptr) continue;
    if (std::exchange(agent->told_folder, job_.newest().folder) == job_.newest().folder) continue;
    outgoing_.ToAgent(agent->port, ReadAheadOrder(job_.newest().folder));
  }
}

}  // namespace weft
