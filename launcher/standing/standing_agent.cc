#include "launcher/standing/standing_agent.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// As shells have it for a program that cannot be executed.
constexpr int kNotStartedExit = 127;
constexpr int kMostHostSlots = 100000;
constexpr size_t kMostNameBytes = 64;

void SayEnd(const AllocationOrder& order, AllocationEnd end, StandingAgent& agent) {
  agent.reports.push_back({++agent.last_sequence, order.job_id, order.allocation, std::move(end)});
}

void End(Allocation& allocation, AllocationEnd end, StandingAgent& agent) {
  allocation.phase = AllocationPhase::kEnded;
  allocation.end = end;
  SayEnd(allocation.order, std::move(end), agent);
  allocation.sequence = agent.last_sequence;
}

// Null if it is not known or has ended.
Allocation* Living(StandingAgent& agent, int64_t number) {
  const auto found = agent.allocations.find(number);
  const bool lives =
      found != agent.allocations.end() && found->second.phase != AllocationPhase::kEnded;
  return lives ? &found->second : nullptr;
}

// One that was told to end, and has more patience than that, is told again.
void AskToEnd(Allocation& allocation, const std::string& reason, int64_t patience_ms,
              StandingAgent& agent) {
  const bool is_told = allocation.phase == AllocationPhase::kTelling ||
                       allocation.phase == AllocationPhase::kStopping;
  if (allocation.phase == AllocationPhase::kWaiting) {
    End(allocation, {.last_words = absl::StrCat("it was not started: ", reason)}, agent);
  } else if (allocation.phase == AllocationPhase::kRunning ||
             (is_told && patience_ms < allocation.patience_ms)) {
    allocation.phase = AllocationPhase::kTelling;
    allocation.patience_ms = patience_ms;
  }
}

void Record(const AllocationGiven& fact, StandingAgent& agent) {
  if (agent.allocations.count(fact.order.allocation) > 0) return;
  absl::Status status = CheckOrder(fact.order);
  if (agent.leaving) status = absl::UnavailableError("this host's standing agent leaves");
  if (status.ok() && agent.allocations.size() >= kMostAllocations) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("this host has ", kMostAllocations, " agents already; end some"));
  }
  if (status.ok()) {
    agent.allocations[fact.order.allocation] = {.order = fact.order};
  } else {
    SayEnd(fact.order, {kNotStartedExit, 0, std::string(status.message())}, agent);
  }
}

void Record(const AllocationTaken& fact, StandingAgent& agent) {
  if (agent.allocations.count(fact.allocation) == 0) {
    const AllocationOrder unknown{.job_id = fact.job_id, .allocation = fact.allocation};
    SayEnd(unknown, {.last_words = "it does not run here"}, agent);
  } else if (Allocation* allocation = Living(agent, fact.allocation)) {
    AskToEnd(*allocation, fact.reason, kAgentPatienceMs, agent);
  }
}

void Record(const AllocationFound& fact, StandingAgent& agent) {
  Allocation& allocation = agent.allocations[fact.order.allocation];
  allocation = {.order = fact.order, .phase = AllocationPhase::kRunning};
  if (fact.end) End(allocation, *fact.end, agent);
}

void Record(const AllocationStarted& fact, StandingAgent& agent) {
  Allocation* allocation = Living(agent, fact.allocation);
  if (allocation == nullptr || allocation->phase != AllocationPhase::kWaiting) return;
  allocation->phase = AllocationPhase::kRunning;
}

void Record(const AllocationNotStarted& fact, StandingAgent& agent) {
  Allocation* allocation = Living(agent, fact.allocation);
  if (allocation != nullptr) End(*allocation, {kNotStartedExit, 0, fact.message}, agent);
}

void Record(const AllocationTold& fact, StandingAgent& agent) {
  Allocation* allocation = Living(agent, fact.allocation);
  if (allocation == nullptr || allocation->phase != AllocationPhase::kTelling) return;
  allocation->phase = AllocationPhase::kStopping;
  allocation->told_ms = fact.now_ms;
}

void Record(const AllocationExited& fact, StandingAgent& agent) {
  Allocation* allocation = Living(agent, fact.allocation);
  if (allocation == nullptr || allocation->phase == AllocationPhase::kSweeping) return;
  allocation->phase = AllocationPhase::kSweeping;
  allocation->end = fact.end;
}

void Record(const AllocationSwept& fact, StandingAgent& agent) {
  Allocation* allocation = Living(agent, fact.allocation);
  if (allocation == nullptr || allocation->phase != AllocationPhase::kSweeping) return;
  End(*allocation, allocation->end, agent);
}

void Record(const EndsAcknowledged& fact, StandingAgent& agent) {
  std::erase_if(agent.allocations, [&](const auto& entry) {
    const Allocation& allocation = entry.second;
    return allocation.phase == AllocationPhase::kEnded && allocation.sequence <= fact.sequence;
  });
}

void Record(const StandingEndAsked&, StandingAgent& agent) {
  agent.leaving = true;
  for (auto& [number, allocation] : agent.allocations) {
    AskToEnd(allocation, "this host's standing agent leaves", kLeavePatienceMs, agent);
  }
}

void Record(const StandingTimePassed& fact, StandingAgent& agent) {
  for (auto& [number, allocation] : agent.allocations) {
    const bool late = allocation.phase == AllocationPhase::kStopping &&
                      fact.now_ms - allocation.told_ms >= allocation.patience_ms;
    if (late) allocation.phase = AllocationPhase::kKilling;
  }
}

// One run has one agent on a host: the second would take the first one's seat.
bool MustWait(const StandingAgent& agent, const AllocationOrder& order) {
  return std::any_of(agent.allocations.begin(), agent.allocations.end(), [&](const auto& entry) {
    const Allocation& other = entry.second;
    return other.order.run_id == order.run_id && other.order.allocation < order.allocation &&
           other.phase != AllocationPhase::kEnded;
  });
}

bool IsName(const std::string& text) {
  const auto fits = [](char each) {
    return absl::ascii_isalnum(static_cast<unsigned char>(each)) || each == '-' || each == '_';
  };
  return !text.empty() && text.size() <= kMostNameBytes &&
         std::all_of(text.begin(), text.end(), fits);
}

}  // namespace

StandingAgent Apply(StandingAgent agent, const StandingFact& fact) {
  std::visit([&](const auto& each) { Record(each, agent); }, fact);
  return agent;
}

std::vector<StandingDuty> Decide(const StandingAgent& agent) {
  std::vector<StandingDuty> duties;
  for (const auto& [number, allocation] : agent.allocations) {
    switch (allocation.phase) {
      case AllocationPhase::kWaiting:
        if (!MustWait(agent, allocation.order)) {
          duties.push_back({StandingDutyKind::kStart, number});
        }
        break;
      case AllocationPhase::kTelling:
        duties.push_back({StandingDutyKind::kTell, number});
        break;
      case AllocationPhase::kKilling:
        duties.push_back({StandingDutyKind::kKill, number});
        break;
      case AllocationPhase::kSweeping:
        duties.push_back({StandingDutyKind::kSweep, number});
        break;
      case AllocationPhase::kRunning:
      case AllocationPhase::kStopping:
      case AllocationPhase::kEnded:
        break;
    }
  }
  return duties;
}

bool MayLeave(const StandingAgent& agent) {
  return agent.leaving &&
         std::all_of(agent.allocations.begin(), agent.allocations.end(), [](const auto& entry) {
           return entry.second.phase == AllocationPhase::kEnded;
         });
}

std::vector<AllocationOrder> RunningOf(const StandingAgent& agent) {
  std::vector<AllocationOrder> running;
  for (const auto& [number, allocation] : agent.allocations) {
    if (allocation.phase != AllocationPhase::kEnded) running.push_back(allocation.order);
  }
  return running;
}

absl::Status CheckOrder(const AllocationOrder& order) {
  if (!IsName(order.job_id) || !IsName(order.run_id)) {
    return absl::InvalidArgumentError(
        absl::StrCat("job_id ", order.job_id, ", run_id ", order.run_id,
                     ": names are letters, digits, - and _, at most ", kMostNameBytes, " of them"));
  }
  if (order.allocation <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("allocation ", order.allocation, ": is not a number of 1 or more"));
  }
  if (!order.run_folder.empty() && !absl::StartsWith(order.run_folder, "/")) {
    return absl::InvalidArgumentError(
        absl::StrCat("run_folder ", order.run_folder, ": is not an absolute path"));
  }
  if (order.host_slots < 1 || order.host_slots > kMostHostSlots) {
    return absl::InvalidArgumentError(absl::StrCat("host_slots ", order.host_slots,
                                                   ": is not a number of 1 to ", kMostHostSlots));
  }
  for (const int slot : order.slots) {
    if (slot >= 0 && slot < order.host_slots) continue;
    return absl::InvalidArgumentError(absl::StrCat("slot ", slot, " is none of this host's ",
                                                   order.host_slots, "; use 0 to ",
                                                   order.host_slots - 1));
  }
  return absl::OkStatus();
}

int64_t RedialMs(int failures, double spread) {
  int64_t wait_ms = kFirstRedialMs;
  for (int i = 1; i < failures && wait_ms < kLastRedialMs; ++i) wait_ms *= 2;
  wait_ms = std::min(wait_ms, kLastRedialMs);
  return wait_ms / 2 + static_cast<int64_t>(spread * static_cast<double>(wait_ms) / 2);
}

}  // namespace weft
