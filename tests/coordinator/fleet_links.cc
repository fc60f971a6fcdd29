// The links of the simulated fleet: slow, lossy, cut; what goes over them is the real messages.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "coordinator/hosts.h"
#include "plan/errors.h"
#include "process/log.h"
#include "process/version.h"
#include "proto/job_text.h"
#include "tests/coordinator/fleet.h"
#include "tests/plan/sample_jobs.h"

namespace weft {

// ---- links ----

// Runs at the other end unless the stream breaks meanwhile; in order.
void SimFleet::Carry(Host& host, int64_t stream, const std::function<void()>& what) {
  int64_t& last_ms = last_arrival_ms_[stream];
  last_ms = std::max(last_ms, now_ms_ + Number(0, Chance(2) ? 300 : 10));
  if (now_ms_ < host.cut_until_ms) last_ms = std::max(last_ms, host.cut_until_ms + 5);
  After(last_ms - now_ms_, [this, &host, stream, what] { Arrive(host, stream, what); });
}

// A message that was under way when the link was cut arrives once it is up again.
void SimFleet::Arrive(Host& host, int64_t stream, const std::function<void()>& what) {
  if (host.dead || host.agent.stream != stream) return;
  if (IsUp(host)) return what();
  const int64_t wait_ms = host.cut_until_ms + 5 - now_ms_;
  int64_t& last_ms = last_arrival_ms_[stream];
  last_ms = std::max(last_ms, now_ms_ + wait_ms);
  After(wait_ms, [this, &host, stream, what] { Arrive(host, stream, what); });
}

void SimFleet::BreakStream(Host& host) {
  const int64_t stream = std::exchange(host.agent.stream, 0);
  if (stream == 0) return;
  host.agent.admitted = false;
  for (auto& [rank_stream, id] : ids_of_[stream]) {
    if (driver_ != nullptr) driver_->Detach(id);
  }
  if (driver_ != nullptr) {
    driver_->leases().Dismiss(stream);
    driver_->DetachAgent(stream);
  }
  for (const auto& rank : host.ranks) {
    rank->stream = 0;
    rank->welcome = false;
  }
  After(Number(50, 150), [this, &host] { Dial(host); });
}

void SimFleet::Dial(Host& host) {
  Agent& agent = host.agent;
  if (!agent.alive || agent.stream != 0 || host.dead) return;
  Note(absl::StrCat("h", host.index, " dials"));
  if (driver_ == nullptr || !IsUp(host)) return After(100, [this, &host] { Dial(host); });
  agent.stream = ++streams_;
  const int64_t stream = agent.stream;
  const int incarnation = incarnation_;
  const auto send = [this, &host, stream, incarnation](const proto::AgentOrder& order) {
    if (incarnation != incarnation_ || IsLostByABug(host, order)) return;
    Carry(host, stream, [this, &host, order] { TakeOrder(host, order); });
  };
  const auto close = [this, &host, stream, incarnation](const absl::Status&) {
    if (incarnation != incarnation_) return;
    After(1, [this, &host, stream] {
      if (host.agent.stream == stream) BreakStream(host);
    });
  };
  driver_->AttachAgent(stream, {send, close});
  proto::AgentReport hello;
  hello.mutable_hello()->set_version(kSimVersion);
  hello.mutable_hello()->set_wire_version(kWireVersion);
  hello.mutable_hello()->set_host(absl::StrCat("h", host.index));
  hello.mutable_hello()->set_machine(host.machine);
  hello.mutable_hello()->set_pid(agent.pid);
  hello.mutable_hello()->set_generation(agent.told_launch);
  hello.mutable_hello()->set_sent_boot_ms(now_ms_);
  SendUp(host, hello);
  if (Has(PlantedBug::kAgentRepeatsNothing)) agent.unacknowledged.clear();
  for (const proto::AgentReport& report : agent.unacknowledged) SendUp(host, report);
  Beat(host, stream);
}

void SimFleet::SendUp(Host& host, const proto::AgentReport& report) {
  const int64_t stream = host.agent.stream;
  Carry(host, stream, [this, &host, stream, report] {
    if (driver_ == nullptr) return;
    Hear(host, stream, report);
    CoordinatorSoon();
  });
}

// The service does the same.
void SimFleet::Hear(Host& host, int64_t stream, const proto::AgentReport& report) {
  if (report.has_heartbeat()) {
    const int64_t early_ms = Has(PlantedBug::kCoordinatorEndsLeasesEarly) ? 3000 : 0;
    const auto lease_ms = driver_->leases().Grant(stream, now_ms_ + 1 - early_ms);
    if (lease_ms) {
      proto::AgentOrder order;
      order.mutable_lease()->set_sent_boot_ms(report.heartbeat().sent_boot_ms());
      order.mutable_lease()->set_lease_ms(*lease_ms);
      Carry(host, stream, [this, &host, order] { TakeOrder(host, order); });
    }
    std::vector<int64_t> ids;
    for (const int64_t rank : report.heartbeat().heard()) {
      const auto id = ids_of_[stream].find(rank);
      if (id != ids_of_[stream].end()) ids.push_back(id->second);
    }
    driver_->Heard(stream, ids);
  } else if (report.has_from_rank()) {
    HearRank(host, stream, report.from_rank());
  } else if (report.has_rank_hung_up()) {
    const auto id = ids_of_[stream].find(report.rank_hung_up().stream());
    if (id == ids_of_[stream].end()) return;
    driver_->Detach(id->second);
    ids_of_[stream].erase(id);
  } else {
    driver_->TakeAgentReport(stream, report);
    const bool spreads = report.has_group_ended() && Has(PlantedBug::kCoordinatorTakesAnyonesProof);
    for (const Host& other : hosts_) {
      if (spreads && other.agent.stream != 0) driver_->TakeAgentReport(other.agent.stream, report);
    }
  }
}

// Bugs of the coordinator that lose what it says.
bool SimFleet::IsLostByABug(Host& host, const proto::AgentOrder& order) {
  if (!Has(PlantedBug::kCoordinatorLaunchesBesides)) return false;
  if (order.has_stop_group()) {
    proto::AgentReport gone;
    gone.mutable_group_ended()->set_generation(order.stop_group().generation());
    gone.mutable_group_ended()->mutable_cause()->set_rank(-1);
    After(1, [this, stream = host.agent.stream, gone] {
      if (driver_ != nullptr) driver_->TakeAgentReport(stream, gone);
    });
    return true;
  }
  proto::Order words;
  return words.ParseFromString(order.to_ranks().order()) && words.has_abort();
}

void SimFleet::HearRank(Host& host, int64_t stream, const proto::FromRank& message) {
  const auto [id, is_new] = ids_of_[stream].try_emplace(message.stream(), 0);
  if (is_new) {
    id->second = ++streams_;
    driver_->Attach(id->second, {.agent = stream, .stream = message.stream()});
  }
  proto::WorkerReport report;
  CHECK(report.ParseFromString(message.report()));
  driver_->Report(id->second, report);
  if (report.has_shard() && report.rank() == 0 && Has(PlantedBug::kCoordinatorGrantsTooEarly)) {
    GrantTooEarly(host, message.stream(), report);
  }
}

void SimFleet::GrantTooEarly(Host& host, int64_t rank_stream, const proto::WorkerReport& report) {
  proto::Order grant;
  grant.set_generation(report.generation());
  grant.mutable_commit()->set_step(report.shard().step());
  grant.mutable_commit()->set_number(report.shard().number());
  *grant.mutable_commit()->add_shards() = report.shard();
  proto::AgentOrder order;
  order.mutable_to_ranks()->add_streams(rank_stream);
  order.mutable_to_ranks()->set_order(grant.SerializeAsString());
  Carry(host, host.agent.stream, [this, &host, order] { TakeOrder(host, order); });
}

}  // namespace weft
