#include "launcher/agent/host_agent.h"

#include <string.h>
#include <sys/wait.h>

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "process/signals.h"

namespace weft {
namespace {

bool Holds(const HostAgent& agent, int64_t generation) {
  return agent.phase != GroupPhase::kNone && agent.generation == generation;
}

template <typename What>
void Say(HostAgent& agent, What what) {
  agent.reports.push_back({++agent.last_sequence, std::move(what)});
}

// Says how somebody ended, at once unless it is in doubt what it comes from. A better cause takes
// the place of one that is in doubt.
void Tell(HostAgent& agent, RankEnd end, bool in_doubt) {
  if (in_doubt && agent.phase == GroupPhase::kRunning) {
    if (!agent.doubtful) {
      agent.doubtful = std::move(end);
      agent.doubtful_since_ms = 0;
    }
    return;
  }
  const bool is_cause = end.signal != 0 || end.exit_code != 0 || end.rank < 0;
  if (is_cause) agent.doubtful.reset();
  Say(agent, std::move(end));
}

// A group in which somebody has failed cannot go on, so nobody in it is waited for.
void Stop(HostAgent& agent, int64_t now_ms) {
  if (agent.phase == GroupPhase::kOrdered || agent.failed) {
    agent.phase = GroupPhase::kKilling;
  } else if (agent.phase == GroupPhase::kRunning) {
    agent.phase = GroupPhase::kStopping;
    agent.stopping_since_ms = now_ms;
  }
}

constexpr int kNoCoordinatorExit = 75;

// The words that the numbers do not say.
std::string HintOf(int signal, int exit_code) {
  if (signal == SIGKILL) return "if nobody sent it, memory ran out";
  if (signal == SIGBUS) return kNoRoomForMapping;
  if (signal == 0 && exit_code == kNoCoordinatorExit) return "it lost its coordinator";
  return "";
}

RankEnd EndOf(int64_t generation, int rank, int wait_status) {
  RankEnd end{.generation = generation, .rank = rank, .message = "", .last_lines = ""};
  if (WIFSIGNALED(wait_status)) {
    end.signal = WTERMSIG(wait_status);
  } else {
    end.exit_code = WEXITSTATUS(wait_status);
  }
  return end;
}

void Record(const LaunchOrdered& fact, HostAgent& agent) {
  if (agent.leaving || agent.phase != GroupPhase::kNone || fact.generation <= agent.generation) {
    return;
  }
  HostAgent next;
  next.generation = fact.generation;
  next.phase = GroupPhase::kOrdered;
  next.ranks = fact.ranks;
  next.kind = fact.kind;
  next.has_other_hosts = fact.has_other_hosts && fact.kind != GroupKind::kForked;
  next.save_requested = agent.save_requested;
  next.host_leaves = agent.host_leaves;
  next.reports = std::move(agent.reports);
  next.last_sequence = agent.last_sequence;
  agent = std::move(next);
}

void Record(const StopOrdered& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation) || !agent.stop_reason.empty()) return;
  agent.stop_reason = fact.reason.empty() ? "no reason was given" : fact.reason;
  Stop(agent, fact.now_ms);
}

void Record(const Superseded& fact, HostAgent& agent) {
  if (agent.phase == GroupPhase::kNone || fact.by_generation <= agent.generation) return;
  if (agent.stop_reason.empty()) {
    agent.stop_reason = absl::StrCat("generation ", fact.by_generation, " takes its place");
  }
  agent.phase = GroupPhase::kKilling;
}

void Record(const GroupStarted& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation) || agent.phase != GroupPhase::kOrdered) return;
  agent.phase = GroupPhase::kRunning;
}

void Record(const GroupNotStarted& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation) || agent.phase != GroupPhase::kOrdered) return;
  agent.failed = true;
  agent.phase = GroupPhase::kKilling;  // some of it may have been started
  Say(agent, RankEnd{.generation = fact.generation, .message = fact.message, .last_lines = ""});
}

void Record(const RankExited& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation)) return;
  RankEnd end = EndOf(fact.generation, fact.rank, fact.wait_status);
  const bool clean = end.signal == 0 && end.exit_code == 0;
  if (clean) ++agent.ended_cleanly;
  // Who is killed by us, or by mpirun as it has announced, is no cause of anything.
  if (agent.phase == GroupPhase::kKilling || (fact.was_doomed && !clean)) return;
  end.lost_lease = fact.lost_lease && (end.exit_code == kNoCoordinatorExit || end.exit_code == 1);
  end.message = fact.shim_lost ? "its shim was killed" : HintOf(end.signal, end.exit_code);
  if (!clean) end.last_lines = fact.last_lines;
  agent.failed = agent.failed || !clean;
  if (agent.failed && agent.phase == GroupPhase::kStopping) agent.phase = GroupPhase::kKilling;
  // Open MPI writes to a peer that is gone: whoever that is has ended first.
  const bool in_doubt = agent.kind != GroupKind::kForked && end.signal == SIGPIPE;
  if (in_doubt) {
    end.message = absl::StrCat("rank ", end.rank, " wrote to a connection that another had closed ",
                               "(SIGPIPE), and nobody tells of that one");
    end.rank = -1;
    end.signal = 0;
    end.is_elsewhere = true;
  }
  Tell(agent, std::move(end), in_doubt);
}

// The rank that was lost may be one of this host's, whose end is told later than this.
void Record(const StarterEnds& fact, HostAgent& agent) {
  const bool runs = Holds(agent, fact.generation) && agent.phase == GroupPhase::kRunning;
  if (!runs || agent.kind == GroupKind::kForked || agent.failed) return;
  agent.failed = true;
  RankEnd end{.generation = fact.generation, .message = "", .last_lines = ""};
  end.message = "mpirun ends all ranks: it has lost one of them, or a host, that nobody tells of";
  end.is_elsewhere = true;
  Tell(agent, std::move(end), /*in_doubt=*/true);
}

void Record(const StarterExited& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation)) return;
  RankEnd end = EndOf(fact.generation, -1, fact.wait_status);
  if (end.signal == 0 && end.exit_code == 0) return;
  agent.starter_failed = true;
  const bool by_signal = end.signal != 0;  // else it has a reason, which may lie elsewhere
  const bool is_known = agent.failed && !(agent.doubtful && by_signal);
  if (is_known || agent.phase == GroupPhase::kKilling) return;
  agent.failed = true;
  end.message = end.signal != 0
                    ? absl::StrCat(fact.name, " was killed by signal ", end.signal, " (",
                                   strsignal(end.signal), ")")
                    : absl::StrCat(fact.name, " ended with code ", end.exit_code, ": ", fact.words);
  end.signal = end.exit_code = 0;  // they are no rank's
  Tell(agent, std::move(end), /*in_doubt=*/!by_signal && agent.has_other_hosts);
  if (agent.phase == GroupPhase::kStopping) agent.phase = GroupPhase::kKilling;
}

void Record(const DaemonWished& fact, HostAgent& agent) {
  const bool asks = Holds(agent, fact.generation) && agent.kind == GroupKind::kMpirun &&
                    agent.phase == GroupPhase::kRunning;
  if (!asks || !agent.wished.insert(fact.host).second) return;
  Say(agent, DaemonWish{fact.generation, fact.host, fact.args});
}

// It may come in one breath with the launch.
void Record(const DaemonOrdered& fact, HostAgent& agent) {
  const bool goes_on = agent.phase == GroupPhase::kOrdered || agent.phase == GroupPhase::kRunning;
  const bool waits = Holds(agent, fact.generation) && goes_on && agent.kind == GroupKind::kGuest &&
                     agent.daemon == DaemonPhase::kNone;
  if (!waits) return;
  agent.daemon = DaemonPhase::kOrdered;
  agent.daemon_args = fact.args;
}

void Record(const DaemonStarted& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation) || agent.daemon != DaemonPhase::kOrdered) return;
  agent.daemon = DaemonPhase::kStarted;
  agent.daemon_args.clear();
}

void Record(const DaemonNotStarted& fact, HostAgent& agent) {
  if (!Holds(agent, fact.generation) || agent.daemon != DaemonPhase::kOrdered) return;
  agent.daemon = DaemonPhase::kNone;
  agent.failed = true;
  agent.phase = GroupPhase::kKilling;
  Say(agent, RankEnd{.generation = fact.generation, .message = fact.message, .last_lines = ""});
}

// Returns whether nothing is there because nothing was started yet.
bool IsYetToCome(const HostAgent& agent) {
  return agent.phase == GroupPhase::kOrdered ||
         (agent.kind == GroupKind::kGuest && agent.phase == GroupPhase::kRunning &&
          agent.daemon != DaemonPhase::kStarted);
}

void Record(const NothingLeft& fact, HostAgent& agent) {
  const bool in_doubt = agent.doubtful && agent.phase == GroupPhase::kRunning;
  if (!Holds(agent, fact.generation) || IsYetToCome(agent) || in_doubt) return;
  const bool clean = !agent.failed && !agent.starter_failed && agent.ended_cleanly == agent.ranks;
  GroupEnd end{fact.generation, clean, ""};
  if (!clean && !agent.stop_reason.empty()) {
    end.message = absl::StrCat("stopped: ", agent.stop_reason);
  }
  agent.phase = GroupPhase::kNone;
  Say(agent, std::move(end));
}

void Record(const SaveAsked& fact, HostAgent& agent) {
  const bool is_news = !agent.save_requested || (fact.leaves && !agent.host_leaves);
  if (!is_news) return;
  agent.save_requested = true;
  agent.host_leaves = fact.leaves;
  Say(agent, SaveRequest{fact.leaves});
}

void Record(const LeaveAsked&, HostAgent& agent) {
  agent.leaving = true;
  if (agent.phase != GroupPhase::kNone) agent.phase = GroupPhase::kKilling;
}

// Ranks have stopped themselves by then; one that could not has no right to go on. What was ordered
// but not started yet stays so until the next lease: the first one of an agent that was let in late
// may have ended before the launch came.
void Record(const LeaseEnded&, HostAgent& agent) {
  if (agent.phase == GroupPhase::kNone || agent.phase == GroupPhase::kOrdered) return;
  if (agent.stop_reason.empty()) agent.stop_reason = "this host's lease ended";
  agent.phase = GroupPhase::kKilling;
}

void Record(const TimePassed& fact, HostAgent& agent) {
  if (agent.doubtful && agent.phase == GroupPhase::kRunning) {
    if (agent.doubtful_since_ms == 0) agent.doubtful_since_ms = fact.now_ms;
    if (fact.now_ms - agent.doubtful_since_ms >= kDoubtMs) {
      RankEnd end = *std::exchange(agent.doubtful, std::nullopt);
      end.in_doubt = true;
      end.seen_ms_ago = fact.now_ms - agent.doubtful_since_ms;
      Say(agent, std::move(end));
    }
  }
  if (agent.phase != GroupPhase::kStopping) return;
  if (fact.now_ms - agent.stopping_since_ms >= kStopPatienceMs) agent.phase = GroupPhase::kKilling;
}

}  // namespace

HostAgent Apply(HostAgent agent, const HostFact& fact) {
  std::visit([&](const auto& each) { Record(each, agent); }, fact);
  return agent;
}

std::optional<HostDuty> Decide(const HostAgent& agent) {
  switch (agent.phase) {
    case GroupPhase::kNone:
      if (agent.leaving) return Leave{};
      break;
    case GroupPhase::kOrdered:
      return StartGroup{};
    case GroupPhase::kRunning:
      if (agent.daemon == DaemonPhase::kOrdered) return StartDaemon{};
      break;
    case GroupPhase::kStopping:
      return TermRanks{};
    case GroupPhase::kKilling:
      return KillGroup{};
  }
  return std::nullopt;
}

}  // namespace weft
