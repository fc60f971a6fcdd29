// The driver's part that has to do with agents: their streams, their facts, the orders to them.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "coordinator/driver.h"
#include "coordinator/hosts.h"
#include "coordinator/record.h"
#include "process/failpoint.h"
#include "process/log.h"
#include "process/version.h"

namespace weft {
namespace {

HostOffered OfferOf(const proto::Hello& hello) {
  return {.machine = hello.machine(),
          .host = hello.host(),
          .slots = hello.slots(),
          .addresses = {hello.host_has().addresses().begin(), hello.host_has().addresses().end()},
          .agent_pid = hello.pid(),
          .gpus = hello.host_has().gpus_size(),
          .cores = hello.host_has().cores(),
          .domain = hello.domain(),
          .free_bytes = hello.host_has().available_bytes(),
          .gpu_free_bytes = hello.gpu_free_bytes(),
          .gpu_text = hello.gpu_text()};
}

}  // namespace

// ---- duties ----

Driver::Agent* Driver::AgentOf(const std::string& machine) {
  const auto stream = agent_of_machine_.find(machine);
  if (stream == agent_of_machine_.end()) return nullptr;
  const auto found = agents_.find(stream->second);
  return found == agents_.end() ? nullptr : &found->second;
}

// The generation goes to the hosts that are there, and from then on to these alone.
void Driver::Do(const LaunchWorkers& launch) {
  Failpoint("driver.launch");
  if (job_.generation.phase == GenerationPhase::kOpen) {
    TurnAwayOlder();
    const absl::StatusOr<HostShares> placed = SharesOf(job_);
    if (absl::IsFailedPrecondition(placed.status())) {
      return Happened(LaunchWaits{launch.generation, absl::StrCat(placed.status().message())});
    }
    if (!placed.ok() || !MayLaunch()) return;
    if (placed->shares.size() > 1) {
      LogInfo(absl::StrCat("generation ", launch.generation, " is placed:\n", placed->picture));
    }
    Happened(Launched{launch.generation, placed->shares});
  }
  std::vector<std::pair<const HostShare*, Agent*>> untold;
  for (const HostShare& share : job_.generation.shares) {
    Agent* const agent = AgentOf(share.machine);
    if (agent != nullptr && agent->told_launch < launch.generation) {
      untold.emplace_back(&share, agent);
    }
  }
  // Durable before anybody starts a process.
  if (untold.empty() || !MayLaunch()) return;
  const proto::AgentOrder order = LaunchOrder(job_);
  for (const auto& [share, agent] : untold) {
    agent->told_launch = launch.generation;
    outgoing_.ToAgent(agent->port, LaunchOrderFor(*share, job_.generation.shares.front(), order));
    TellDaemon(share->machine);  // mpirun may have asked the agent before this one
  }
}

// An agent that came while a launch was under way, and that was not told of it before the
// generation's end was decided, has nothing to stop and would wait for the launch for ever.
void Driver::Do(const StopWorkers& stop) {
  for (const HostShare& share : job_.generation.shares) {
    Agent* const agent = AgentOf(share.machine);
    if (agent == nullptr || share.gone) continue;
    if (agent->told_launch < stop.generation) {
      return NothingIsLeft(*agent, "was never told to start this generation");
    }
    if (std::exchange(agent->told_stop, stop.generation) == stop.generation) continue;
    outgoing_.ToAgent(agent->port, StopGroupOrder(stop));
  }
}

// ---- messages: from any thread ----

void Driver::AttachAgent(int64_t id, AgentPort port, AgentStay stay) {
  const auto close = port.close;
  const bool posted = Post([this, id, port = std::move(port), stay] {
    Agent& agent = agents_[id];
    agent.port = std::make_shared<const AgentPort>(port);
    agent.stay = stay;
  });
  if (!posted) close(absl::UnavailableError("the coordinator is busy or closing; come back"));
}

bool Driver::TakeAgentReport(int64_t id, proto::AgentReport report) {
  const auto bytes = static_cast<int64_t>(report.ByteSizeLong());
  return Post([this, id, report = std::move(report)] { OnAgentReport(id, report); }, bytes);
}

bool Driver::Heard(int64_t id, std::vector<int64_t> streams) {
  return Post([this, id, streams = std::move(streams)] { OnHeard(id, streams); }, 0, Room::kBounded,
              Wake::kWithTick);
}

void Driver::TellAbsence(int64_t absent_ms, std::function<void()> told) {
  const bool posted = Post([this, absent_ms, told] {
    proto::AgentOrder order;
    order.mutable_absence()->set_absent_ms(absent_ms);
    for (const auto& [machine, stream] : agent_of_machine_) {
      const Agent& agent = agents_.at(stream);
      if (!agent.takes_absence) continue;  // its ranks stop with its lease
      leases_.AwaitPromise(stream);
      outgoing_.ToAgent(agent.port, order);
    }
    outgoing_.Then([told](const absl::Status&) { told(); });
  });
  if (!posted) told();
}

void Driver::DetachAgent(int64_t id) {
  const auto forget = [this, id] {
    const auto agent = agents_.find(id);
    if (agent == agents_.end()) return;
    const std::string machine = agent->second.machine;
    agents_.erase(agent);
    const auto current = agent_of_machine_.find(machine);
    if (current == agent_of_machine_.end() || current->second != id) return;
    agent_of_machine_.erase(current);
    Happened(HostAway{machine});
  };
  Post(forget, 0, Room::kAlways);
}

// ---- messages: on the driver's thread ----

void Driver::RefuseAgent(int64_t id, const absl::Status& why) {
  LogWarning(absl::StrCat("an agent is turned away: ", why.message()));
  leases_.Dismiss(id);
  const auto agent = agents_.find(id);
  CloseLater(agent->second, why);
  agents_.erase(agent);
}

void Driver::CloseLater(const Agent& agent, const absl::Status& why) {
  outgoing_.Then([port = agent.port, why](const absl::Status&) { port->close(why); });
}

// The coordinator says what the agent itself would, if it knew of its share.
void Driver::NothingIsLeft(const Agent& agent, const std::string& why) {
  AttemptEnded gone;
  gone.generation = job_.generation.number;
  gone.host = agent.host;
  gone.machine = agent.machine;
  gone.message = absl::StrCat("the agent on ", agent.host, " ", why);
  Happened(gone);
}

// A host that was lost may have kept its stream: a new Hello offers it again, once it is back.
void Driver::SendAway(const std::string& machine) {
  const auto stream = agent_of_machine_.find(machine);
  if (stream == agent_of_machine_.end()) return;
  const int64_t id = stream->second;
  agent_of_machine_.erase(stream);
  leases_.Dismiss(id);
  const auto agent = agents_.find(id);
  if (agent == agents_.end()) return;
  CloseLater(agent->second, absl::UnavailableError("this host's lease has ended; come back"));
  agents_.erase(agent);
}

void Driver::OnAgentReport(int64_t id, const proto::AgentReport& report) {
  const auto found = agents_.find(id);
  if (found == agents_.end()) return;  // turned away, but it had more to say
  Agent& agent = found->second;
  if (report.has_hello()) return OnHello(id, agent, report.hello());
  if (agent.host.empty()) {
    return RefuseAgent(id, absl::InvalidArgumentError("an agent has to say hello first"));
  }
  OnAgentFact(agent, report);
  if (broken_) return;
  agent.sequence = std::max(agent.sequence, report.sequence());
  if (!std::exchange(agent.is_due, true)) due_agents_.push_back(id);
}

// Steps were not acknowledged one by one.
void Driver::OnHeard(int64_t id, const std::vector<int64_t>& streams) {
  if (agents_.count(id) == 0) return;
  for (const int64_t each : streams) {
    const auto found = streams_.find(each);
    if (found == streams_.end() || found->second.generation != job_.generation.number) continue;
    Stream& stream = found->second;
    clocks_.heard_ms[stream.rank] = Now();
    if (stream.acknowledged < stream.sequence) AcknowledgeLater(each, stream);
  }
}

void Driver::OnAgentFact(const Agent& agent, const proto::AgentReport& report) {
  Failpoint("driver.agent_fact");
  if (report.has_check_opened()) return OnCheckOpened(agent, report.check_opened());
  if (report.has_host_checked()) return OnHostChecked(agent, report.host_checked());
  if (report.has_save_requested()) return OnSaveRequested(agent, report.save_requested());
  // One that has no part in the generation knows nothing of it, nor has it a say in it.
  if (FindShare(job_, agent.machine) == nullptr) return;
  switch (report.report_case()) {
    case proto::AgentReport::kRanksSeen:
      return OnRanksSeen(agent, report.ranks_seen());
    case proto::AgentReport::kStacksTaken:
      return OnStacksTaken(agent, report.stacks_taken());
    case proto::AgentReport::kRankEnded: {
      RankEnded fact = FactOf(report.rank_ended());
      const proto::Cause& cause = report.rank_ended().cause();
      if (!cause.is_elsewhere()) fact.host = agent.host;
      return cause.in_doubt() ? HoldDoubtful(fact, Now() - cause.seen_ms_ago()) : Happened(fact);
    }
    case proto::AgentReport::kGroupEnded: {
      AttemptEnded fact = FactOf(report.group_ended());
      fact.host = agent.host;
      fact.machine = agent.machine;
      const bool is_held = doubtful_ && doubtful_->fact.generation == fact.generation;
      return is_held ? doubtful_->ends.push_back(fact) : Happened(fact);
    }
    case proto::AgentReport::kDaemonWanted:
      return OnDaemonWanted(agent, report.daemon_wanted());
    default:  // what the service takes before it comes here
      break;
  }
}

// A host that leaves takes itself out, whatever it has. Whoever wants the job to end has to have a
// share of it; between generations nobody has one, and everybody may.
void Driver::OnSaveRequested(const Agent& agent, const proto::SaveRequested& asked) {
  if (asked.leaves() || agent.is_of_fleet) return Happened(HostLeaves{agent.machine});
  const bool has_say = job_.generation.shares.empty() || FindShare(job_, agent.machine) != nullptr;
  if (has_say) Happened(StopAsked{/*now=*/false});
}

// mpirun ends what it has on all hosts once it has lost one rank or one host. Of reports in doubt
// one that names a host says more than one that does not; of equals the one that was seen first is
// what it began with. Reports are as late as their hosts are busy.
void Driver::HoldDoubtful(const RankEnded& fact, int64_t seen_ms) {
  constexpr int64_t kGatherMs = 30;
  const bool is_held = doubtful_ && doubtful_->fact.generation == fact.generation;
  const auto rank_of = [](const RankEnded& end, int64_t seen) {
    return std::pair(end.host.empty(), seen);
  };
  if (is_held && rank_of(doubtful_->fact, doubtful_->seen_ms) <= rank_of(fact, seen_ms)) return;
  if (!is_held) doubtful_.emplace().until_ms = Now() + kGatherMs;
  doubtful_->fact = fact;
  doubtful_->seen_ms = seen_ms;
}

// Somebody has to tell where nobody is absent, however late; if not, nobody is blamed.
void Driver::JudgeDoubtful() {
  constexpr int64_t kHearOutMs = 300;
  if (!doubtful_ || Now() < doubtful_->until_ms) return;
  const bool is_live =
      doubtful_->fact.generation == job_.generation.number && IsLive(job_.generation.phase);
  RankEnded fact = doubtful_->fact;
  const bool is_known = BlameAbsent(fact) || !fact.host.empty();
  if (is_live && !is_known && Now() < doubtful_->until_ms + kHearOutMs) return;
  const DoubtfulEnd doubtful = *std::exchange(doubtful_, std::nullopt);
  Happened(fact);
  for (const AttemptEnded& end : doubtful.ends) Happened(end);
}

// Ranks of a host whose agent is silent stop themselves before its lease is over: by then it has
// been silent for so long.
std::optional<int64_t> Driver::SilentMs(const std::string& machine) const {
  const int64_t left_ms = leases_.EndOf(machine) - Now();
  const int64_t silent_ms = LeaseMs() - left_ms;
  return silent_ms >= LeaseMs() * 7 / 10 ? std::optional(silent_ms) : std::nullopt;
}

// Returns whether there is one. A host whose agent is gone or silent cannot tell of its own loss:
// what the others saw of it is that mpirun ended their ranks. After a restart of the coordinator
// agents may only be on their way back.
bool Driver::BlameAbsent(RankEnded& fact) {
  if (job_.phase == Phase::kRecovering) return false;
  for (const HostShare& share : job_.generation.shares) {
    const bool is_gone = AgentOf(share.machine) == nullptr;
    const std::optional<int64_t> silent_ms = SilentMs(share.machine);
    if (share.gone || !(is_gone || silent_ms)) continue;
    fact.rank = -1;
    fact.signal = fact.exit_code = 0;
    fact.host = share.host;
    fact.last_stderr = "";
    fact.message = absl::StrCat("the agent on ", share.host, " is gone, and its ranks with it");
    if (!is_gone) {
      fact.message = absl::StrFormat(
          "the agent on %s has not been heard for %.1f s, and its ranks stop before its lease of "
          "%.1f s is over",
          share.host, static_cast<double>(*silent_ms) / 1000,
          static_cast<double>(LeaseMs()) / 1000);
    }
    return true;
  }
  return false;
}

// mpirun's daemons are started by agents, each on its own host.
void Driver::OnDaemonWanted(const Agent& agent, const proto::DaemonWanted& wanted) {
  const Generation& generation = job_.generation;
  const bool is_starter = wanted.generation() == generation.number && IsLive(generation.phase) &&
                          !generation.shares.empty() &&
                          generation.shares.front().machine == agent.machine;
  if (!is_starter) return;
  for (const HostShare& share : generation.shares) {
    if (share.host != wanted.host()) continue;
    proto::StartDaemon& daemon = *daemons_[share.machine].mutable_start_daemon();
    daemon.set_generation(wanted.generation());
    *daemon.mutable_args() = wanted.args();
    TellDaemon(share.machine);
  }
}

// Told again on each stream of the agent: the one before may have broken under way.
void Driver::TellDaemon(const std::string& machine) {
  const auto daemon = daemons_.find(machine);
  Agent* const agent = AgentOf(machine);
  if (daemon == daemons_.end() || agent == nullptr) return;
  const int64_t generation = daemon->second.start_daemon().generation();
  if (generation != job_.generation.number) return;
  if (agent->told_launch < generation) return;  // it knows nothing of it yet: told with the launch
  outgoing_.ToAgent(agent->port, daemon->second);
}

// Open MPI's daemons and libraries speak to their own version alone. Ranks on GPUs need none.
absl::Status Driver::CheckMpi(const std::string& machine, const std::string& host,
                              const std::string& mpi) const {
  const bool needs_mpi = !job_.id.empty() && job_.spec.cluster.device.backend == BackendKind::kCpu;
  if (mpi.empty() || !needs_mpi) return absl::OkStatus();
  for (const auto& [other, stream] : agent_of_machine_) {
    const Agent& there = agents_.at(stream);
    if (other == machine || there.mpi.empty() || there.mpi == mpi) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("the host ", host, " has ", mpi, ", the host ", there.host, " has ", there.mpi,
                     "; install one version of MPI on all hosts of a job"));
  }
  return absl::OkStatus();
}

// Agents that came before the job were not asked for more than it needs. The first one stays.
void Driver::TurnAwayOtherMpi() {
  std::vector<std::string> machines;
  for (const auto& [machine, stream] : agent_of_machine_) machines.push_back(machine);
  for (auto each = machines.rbegin(); each != machines.rend(); ++each) {
    const Agent& agent = agents_.at(agent_of_machine_.at(*each));
    const absl::Status same = CheckMpi(*each, agent.host, agent.mpi);
    if (!same.ok()) TurnAway(*each, same);
  }
}

// The generation for which they were let in is over.
void Driver::TurnAwayOlder() {
  std::vector<std::string> machines;
  for (const auto& [machine, stream] : agent_of_machine_) {
    if (agents_.at(stream).stay == AgentStay::kForItsGeneration) machines.push_back(machine);
  }
  for (const std::string& machine : machines) {
    TurnAway(machine, absl::AbortedError("an agent with a token of its own takes its place"));
  }
}

void Driver::TurnAway(const std::string& machine, const absl::Status& why) {
  const int64_t id = agent_of_machine_.at(machine);
  agent_of_machine_.erase(machine);
  Happened(HostAway{machine});
  RefuseAgent(id, why);
}

// Back from weftd's absence: its ranks dial behind it, and were not silent while nobody listened.
void Driver::HearRanksOf(const std::string& machine) {
  for (const HostShare& share : job_.generation.shares) {
    if (share.machine != machine) continue;
    for (const int rank : share.ranks) clocks_.heard_ms[rank] = Now();
  }
}

void Driver::OnHello(int64_t id, Agent& agent, const proto::Hello& hello) {
  if (!agent.host.empty()) {
    return TurnAway(agent.machine,
                    absl::InvalidArgumentError("an agent says hello once on a stream"));
  }
  if (hello.wire_version() != kWireVersion) {
    return RefuseAgent(
        id, absl::FailedPreconditionError(absl::StrCat(
                "the agent on ", hello.host(), ", weft ", hello.version(), ", speaks wire version ",
                hello.wire_version(), ", the coordinator, weft ", options_.version, ", speaks ",
                kWireVersion, "; install versions that speak the same one")));
  }
  if (hello.host().empty() || hello.machine().empty()) {
    return RefuseAgent(id, absl::InvalidArgumentError("an agent has to name its host and machine"));
  }
  const auto former = agent_of_machine_.find(hello.machine());
  // All that are there are of one build, so that any of them stands for the rest.
  const auto other = std::find_if(agent_of_machine_.begin(), agent_of_machine_.end(),
                                  [&](const auto& each) { return each.first != hello.machine(); });
  if (other != agent_of_machine_.end()) {
    const Agent& there = agents_.at(other->second);
    if (there.version != hello.version()) {
      return RefuseAgent(id, absl::FailedPreconditionError(absl::StrCat(
                                 "the agent on ", hello.host(), " is weft ", hello.version(),
                                 ", that on ", there.host, " is weft ", there.version,
                                 "; install one build on all hosts of a job")));
    }
  }
  const absl::Status same_mpi = CheckMpi(hello.machine(), hello.host(), hello.host_has().mpi());
  if (!same_mpi.ok()) return RefuseAgent(id, same_mpi);
  if (former != agent_of_machine_.end() && former->second != id) {
    RefuseAgent(former->second, absl::AbortedError("a newer agent has taken its place"));
  }
  agent_of_machine_[hello.machine()] = id;
  agent.host = hello.host();
  agent.machine = hello.machine();
  agent.version = hello.version();
  agent.mpi = hello.host_has().mpi();
  agent.is_of_fleet = hello.allocation() != 0;
  agent.takes_absence = hello.takes_absence();
  agent.told_launch = hello.generation();
  LogInfo(absl::StrCat("agent on ", agent.host, ", process ", hello.pid(), ": ",
                       hello.host_has().cores(), " cores, ", hello.host_has().gpus_size(),
                       " GPUs, ", hello.host_has().numa_nodes_size(), " NUMA nodes"));
  // The host is there again before the generation that it had a share of is over.
  const bool has_nothing = ComesWithoutItsShare(job_, agent.machine, hello.generation());
  Happened(OfferOf(hello));
  if (has_nothing) {
    NothingIsLeft(agent, "ended, and what it had started with it; another one is there");
  }
  if (broken_) return;
  leases_.Admit(id, agent.machine);
  if (leases_.HasPromise(agent.machine)) HearRanksOf(agent.machine);
  proto::AgentOrder order;
  order.mutable_welcome();
  outgoing_.ToAgent(agent.port, order);
  const std::optional<int64_t> lease_ms = leases_.Grant(id, Now(), /*has_promise=*/true);
  outgoing_.ToAgent(agent.port, LeaseOrder(hello.sent_boot_ms(), *lease_ms));
  TellDaemon(agent.machine);
}

}  // namespace weft
