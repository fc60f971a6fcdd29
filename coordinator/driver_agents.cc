// The driver's part that has to do with agents: their streams, their facts, the orders to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/driver.h"
#include "coordinator/record.h"
#include "process/clock.h"
#include "process/log.h"

namespace weft {

// ---- duties ----

Driver::Agent* Driver::CurrentAgent() {
  const auto found = agents_.find(current_agent_);
  return found == agents_.end() ? nullptr : &found->second;
}

// The generation goes to the agent that is there, and from then on to its machine alone.
void Driver::Do(const LaunchWorkers& launch) {
  Agent* const agent = CurrentAgent();
  if (agent == nullptr || agent->told_launch >= launch.generation) return;
  if (job_.generation.phase == GenerationPhase::kOpen) {
    if (!MayLaunch()) return;
    // Durable before anybody starts a process.
    Happened(Launched{launch.generation, agent->machine});
  }
  if (broken_ || job_.generation.machine != agent->machine) return;
  agent->told_launch = launch.generation;
  agent->port.send(LaunchOrder(job_));
}

void Driver::Do(const StopWorkers& stop) {
  Agent* const agent = CurrentAgent();
  if (agent == nullptr || agent->machine != job_.generation.machine) return;
  if (std::exchange(agent->told_stop, stop.generation) == stop.generation) return;
  agent->port.send(StopGroupOrder(stop));
}

// ---- messages: from any thread ----

void Driver::AttachAgent(int64_t id, AgentPort port) {
  const auto close = port.close;
  const bool posted = Post([this, id, port = std::move(port)] { agents_[id].port = port; });
  if (!posted) close(absl::UnavailableError("the coordinator is busy or closing; come back"));
}

bool Driver::TakeAgentReport(int64_t id, proto::AgentReport report) {
  const auto bytes = static_cast<int64_t>(report.ByteSizeLong());
  return Post([this, id, report = std::move(report)] { OnAgentReport(id, report); }, bytes);
}

bool Driver::Heard(int64_t id, std::vector<int64_t> streams) {
  return Post([this, id, streams = std::move(streams)] { OnHeard(id, streams); });
}

void Driver::DetachAgent(int64_t id) {
  const auto forget = [this, id] {
    agents_.erase(id);
    if (current_agent_ == id) current_agent_ = 0;
  };
  Post(forget, 0, Room::kAlways);
}

// ---- messages: on the driver's thread ----

void Driver::RefuseAgent(int64_t id, const absl::Status& why) {
  LogWarning(absl::StrCat("an agent is turned away: ", why.message()));
  leases_.Dismiss(id);
  const auto agent = agents_.find(id);
  agent->second.port.close(why);
  agents_.erase(agent);
}

void Driver::OnAgentReport(int64_t id, const proto::AgentReport& report) {
  const auto found = agents_.find(id);
  if (found == agents_.end()) return;  // turned away, but it had more to say
  Agent& agent = found->second;
  if (report.has_hello()) return OnHello(id, agent, report.hello());
  if (current_agent_ != id) {
    return RefuseAgent(id, absl::InvalidArgumentError("an agent has to say hello first"));
  }
  OnAgentFact(agent, report);
  if (broken_) return;
  agent.sequence = std::max(agent.sequence, report.sequence());
  proto::AgentOrder acknowledgement;
  acknowledgement.set_acknowledged(Acknowledged(agent));
  agent.port.send(acknowledgement);
}

// Steps were not acknowledged one by one.
void Driver::OnHeard(int64_t id, const std::vector<int64_t>& streams) {
  if (agents_.count(id) == 0) return;
  for (const int64_t each : streams) {
    const auto found = streams_.find(each);
    if (found == streams_.end() || found->second.generation != job_.generation.number) continue;
    Stream& stream = found->second;
    clocks_.heard_ms[stream.rank] = BootTimeMs();
    if (stream.acknowledged < stream.sequence) SendAcknowledgement(stream);
  }
}

void Driver::OnAgentFact(const Agent& agent, const proto::AgentReport& report) {
  switch (report.report_case()) {
    case proto::AgentReport::kRankEnded: {
      RankEnded fact = FactOf(report.rank_ended());
      fact.host = agent.host;
      return Happened(fact);
    }
    case proto::AgentReport::kGroupEnded: {
      AttemptEnded fact = FactOf(report.group_ended());
      fact.host = agent.host;
      fact.machine = agent.machine;
      return Happened(fact);
    }
    case proto::AgentReport::kSaveRequested:
      return Happened(StopAsked{/*now=*/false});
    default:  // what the service takes before it comes here
      break;
  }
}

void Driver::OnHello(int64_t id, Agent& agent, const proto::Hello& hello) {
  if (hello.version() != options_.version) {
    return RefuseAgent(id, absl::FailedPreconditionError(absl::StrCat(
                               "the agent on ", hello.host(), " is weft ", hello.version(),
                               ", the coordinator is weft ", options_.version,
                               "; install the same version everywhere")));
  }
  if (current_agent_ != 0 && current_agent_ != id) {
    RefuseAgent(current_agent_, absl::AbortedError("a newer agent has taken its place"));
  }
  current_agent_ = id;
  agent.host = hello.host();
  agent.machine = hello.machine();
  agent.told_launch = hello.generation();
  LogInfo(absl::StrCat("agent on ", agent.host, ", process ", hello.pid(), ": ",
                       hello.host_has().cores(), " cores, ", hello.host_has().gpus_size(),
                       " GPUs, ", hello.host_has().numa_nodes_size(), " NUMA nodes"));
  const Generation& generation = job_.generation;
  const bool is_its_own = generation.number == hello.generation();
  const bool may_run = generation.phase == GenerationPhase::kStopping ||
                       (!generation.members.empty() && IsLive(generation.phase));
  if (!is_its_own && may_run && generation.machine == agent.machine) {
    AttemptEnded gone;
    gone.generation = generation.number;
    gone.host = agent.host;
    gone.machine = agent.machine;
    gone.message = absl::StrCat("the agent on ", agent.host,
                                " ended, and what it had started with it; another one is there");
    Happened(gone);
    if (broken_) return;
  }
  leases_.Admit(id, agent.machine);
  proto::AgentOrder order;
  order.mutable_welcome();
  agent.port.send(order);
  const std::optional<int64_t> lease_ms = leases_.Grant(id, BootTimeMs());
  agent.port.send(LeaseOrder(hello.sent_boot_ms(), *lease_ms));
}

}  // namespace weft
