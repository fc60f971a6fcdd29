// The simulated agents, with their real minds, their ranks, and how these train together.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "coordinator/hosts.h"
#include "launcher/agent/lease_times.h"
#include "plan/errors.h"
#include "process/log.h"
#include "proto/job_text.h"
#include "tests/coordinator/fleet.h"
#include "tests/plan/sample_jobs.h"

namespace weft {

// ---- agents ----

void SimFleet::StartAgent(Host& host) {
  if (host.dead || host.agent.alive) return;
  host.agent = Agent();
  host.agent.alive = true;
  host.agent.pid = ++pids_;
  if (!Has(PlantedBug::kAgentVouchesForWhatItDidNotEnd)) {
    for (const auto& rank : host.ranks) rank->alive = false;
  }
  host.ranks.erase(std::remove_if(host.ranks.begin(), host.ranks.end(),
                                  [](const auto& rank) { return !rank->alive; }),
                   host.ranks.end());
  Dial(host);
}

void SimFleet::KillAgent(Host& host) {
  if (!host.agent.alive) return;
  host.agent.alive = false;
  BreakStream(host);
  After(Chance(70) ? Number(20, 1500) : Number(1500, 15000), [this, &host] { StartAgent(host); });
}

void SimFleet::Beat(Host& host, int64_t stream) {
  Agent& agent = host.agent;
  if (!agent.alive || agent.stream != stream) return;
  if (now_ms_ < host.frozen_until_ms) {
    return After(host.frozen_until_ms - now_ms_, [this, &host, stream] { Beat(host, stream); });
  }
  SendHeartbeat(host);
  After(HeartbeatMs(kLeaseMs), [this, &host, stream] { Beat(host, stream); });
}

void SimFleet::SendHeartbeat(Host& host) {
  proto::AgentReport report;
  report.mutable_heartbeat()->set_sent_boot_ms(now_ms_);
  for (const auto& rank : host.ranks) {
    const bool speaks = rank->alive && now_ms_ >= rank->frozen_until_ms && rank->stream != 0;
    if (speaks) report.mutable_heartbeat()->add_heard(rank->stream);
  }
  SendUp(host, report);
}

void SimFleet::Happened(Host& host, const HostFact& fact) {
  Agent& agent = host.agent;
  if (!agent.alive) return;
  agent.mind = Apply(std::move(agent.mind), fact);
  for (const HostReport& said : std::exchange(agent.mind.reports, {})) {
    proto::AgentReport report;
    report.set_sequence(said.sequence);
    if (const auto* end = std::get_if<RankEnd>(&said.what)) {
      report.mutable_rank_ended()->set_generation(end->generation);
      report.mutable_rank_ended()->mutable_cause()->set_rank(end->rank);
      report.mutable_rank_ended()->mutable_cause()->set_signal(end->signal);
      report.mutable_rank_ended()->mutable_cause()->set_exit_code(end->exit_code);
    } else if (const auto* group = std::get_if<GroupEnd>(&said.what)) {
      report.mutable_group_ended()->set_generation(group->generation);
      report.mutable_group_ended()->set_clean(group->clean);
      report.mutable_group_ended()->mutable_cause()->set_rank(-1);
    }
    agent.unacknowledged.push_back(report);
    agent.said.push_back(report);
    if (agent.stream != 0) SendUp(host, report);
  }
  Obey(host);
}

void SimFleet::Obey(Host& host) {
  Agent& agent = host.agent;
  const std::optional<HostDuty> duty = Decide(agent.mind);
  if (!duty) return;
  const int64_t generation = agent.mind.generation;
  if (std::holds_alternative<StartGroup>(*duty)) {
    if (now_ms_ >= agent.lease_end_ms) return After(5, [this, &host] { Obey(host); });
    StartRanks(host);
    Happened(host, GroupStarted{generation});
  } else if (std::holds_alternative<KillGroup>(*duty)) {
    KillRanks(host, generation);
  } else if (std::holds_alternative<TermRanks>(*duty)) {
    After(kStopPatienceMs, [this, &host] { Happened(host, TimePassed{now_ms_}); });
  }
}

void SimFleet::StartRanks(Host& host) {
  const proto::Launch& launch = *host.agent.launch;
  for (const proto::HostRanks& share : launch.hosts()) {
    if (share.machine() != host.machine) continue;
    for (const int number : share.ranks()) {
      auto rank = std::make_shared<Rank>();
      rank->generation = launch.generation();
      rank->rank = number;
      rank->world_size = launch.world_size();
      rank->pid = ++pids_;
      rank->stop_at_ms = now_ms_ + 6400;
      host.ranks.push_back(rank);
      After(Number(10, 300), [this, &host, rank] { DialAgent(host, rank); });
      WatchLease(host, rank);
    }
  }
}

void SimFleet::KillRanks(Host& host, int64_t generation) {
  if (Has(PlantedBug::kAgentSaysGoneTooEarly)) {
    After(1, [this, &host, generation] { Happened(host, NothingLeft{generation}); });
    After(6000, [&host, generation] {
      for (const auto& rank : host.ranks) {
        if (rank->generation == generation) rank->alive = false;
      }
    });
    return;
  }
  After(Number(1, 30), [this, &host, generation] {
    for (const auto& rank : host.ranks) {
      if (rank->generation != generation) continue;
      if (!Has(PlantedBug::kRankIgnoresAnAbort)) rank->alive = false;
    }
    Reap(host);
  });
}

// Once no process of the generation is there, and each was waited for, the agent finds nothing
// left.
void SimFleet::Reap(Host& host) {
  const int64_t generation = host.agent.mind.generation;
  const bool left = std::any_of(host.ranks.begin(), host.ranks.end(), [&](const auto& rank) {
    return (rank->alive || rank->exiting) && !Has(PlantedBug::kRankIgnoresAnAbort);
  });
  if (!left && host.agent.mind.phase != GroupPhase::kNone) {
    Happened(host, NothingLeft{generation});
    for (const proto::AgentOrder& order : std::exchange(host.agent.waiting, {})) {
      TakeOrder(host, order);
    }
  }
}

void SimFleet::PassOn(Host& host, const proto::AgentOrder& order) {
  const std::vector<std::shared_ptr<Rank>> ranks = host.ranks;
  const auto each = [&](int64_t stream,
                        const std::function<void(const std::shared_ptr<Rank>&)>& tell) {
    for (const auto& rank : ranks) {
      if (rank->alive && rank->stream == stream) tell(rank);
    }
  };
  proto::Order words;
  CHECK(words.ParseFromString(order.to_ranks().order()));
  for (const int64_t stream : order.to_ranks().streams()) {
    each(stream, [&](const std::shared_ptr<Rank>& rank) { TakeRankOrder(host, rank, words); });
  }
  if (!order.has_hang_up()) return;
  each(order.hang_up().stream(), [&](const std::shared_ptr<Rank>& rank) {
    rank->stream = 0;
    const auto why = static_cast<absl::StatusCode>(order.hang_up().code());
    const bool again =
        why == absl::StatusCode::kUnavailable || why == absl::StatusCode::kResourceExhausted;
    if (!again) Exit(host, rank, 75);
  });
}

void SimFleet::TakeOrder(Host& host, const proto::AgentOrder& order) {
  Agent& agent = host.agent;
  if (!agent.alive) return;
  while (!agent.unacknowledged.empty() &&
         agent.unacknowledged.front().sequence() <= order.acknowledged()) {
    agent.unacknowledged.pop_front();
  }
  if (order.has_to_ranks() || order.has_hang_up()) return PassOn(host, order);
  if (order.has_lease()) TakeLease(host, order.lease());
  if (order.has_check_host()) {  // all is well there
    proto::AgentReport report;
    report.mutable_host_checked()->set_round(order.check_host().round());
    report.mutable_host_checked()->set_pairs_only(order.check_host().pairs_only());
    SendUp(host, report);
  }
  if (order.has_launch()) {
    agent.told_launch = std::max(agent.told_launch, order.launch().generation());
    const bool old = order.launch().generation() <= agent.mind.generation;
    if (old) return;
    if (agent.mind.phase != GroupPhase::kNone) {
      agent.waiting.push_back(order);
      return Happened(host, Superseded{order.launch().generation()});
    }
    agent.launch = order.launch();
    int mine = 0;
    for (const proto::HostRanks& share : order.launch().hosts()) {
      if (share.machine() == host.machine) mine = share.ranks_size();
    }
    Happened(host, LaunchOrdered{order.launch().generation(), mine, GroupKind::kForked});
  }
  const bool waits = !agent.waiting.empty();
  if (order.has_stop_group() && waits && order.stop_group().generation() > agent.mind.generation) {
    agent.waiting.push_back(order);
  } else if (order.has_stop_group()) {
    Happened(host,
             StopOrdered{order.stop_group().generation(), order.stop_group().reason(), now_ms_});
  }
}

void SimFleet::TakeLease(Host& host, const proto::AgentLease& lease) {
  Agent& agent = host.agent;
  const int64_t lease_ms = lease.lease_ms() * (Has(PlantedBug::kAgentDoublesTheLease) ? 2 : 1);
  agent.lease_end_ms = std::max(agent.lease_end_ms, lease.sent_boot_ms() + lease_ms);
  agent.rank_stop_at_ms = lease.sent_boot_ms() + RanksShareMs(lease_ms);
  for (const auto& rank : host.ranks) TellLease(host, rank);
  WatchAgentLease(host, agent.lease_end_ms - now_ms_);
  const bool asks = IsShort(agent.lease_end_ms - now_ms_, lease_ms);
  if (asks && now_ms_ >= host.frozen_until_ms) SendHeartbeat(host);
}

void SimFleet::WatchAgentLease(Host& host, int64_t delay_ms) {
  const int64_t end_ms = host.agent.lease_end_ms;
  const int64_t pid = host.agent.pid;
  After(std::max<int64_t>(0, delay_ms), [this, &host, end_ms, pid] {
    if (host.agent.pid != pid || host.agent.lease_end_ms != end_ms) return;
    if (now_ms_ >= host.frozen_until_ms) return Happened(host, LeaseEnded{});
    // It looks at its lease at some time after it runs again, perhaps after a new one has come.
    WatchAgentLease(host, host.frozen_until_ms - now_ms_ + Number(0, 1000));
  });
}

void SimFleet::TellLease(Host& host, const std::shared_ptr<Rank>& rank) {
  if (!rank->alive || rank->stream == 0) return;
  const bool in_time = now_ms_ < rank->stop_at_ms;
  if (!in_time && !Has(PlantedBug::kAgentProlongsAnEndedLease)) return;
  if (host.agent.rank_stop_at_ms <= now_ms_) return;  // the next is on its way
  const int64_t before_ms = std::exchange(rank->has_lease, true) ? rank->stop_at_ms : 0;
  rank->stop_at_ms = std::max(before_ms, host.agent.rank_stop_at_ms);
  WatchLease(host, rank);
}

// ---- ranks ----

// A rank does this after `delay_ms`, or once it runs again.
void SimFleet::RankAfter(int64_t delay_ms, const std::shared_ptr<Rank>& rank,
                         const std::function<void()>& what) {
  After(delay_ms, [this, rank, what] {
    if (!rank->alive) return;
    if (now_ms_ >= rank->frozen_until_ms) return what();
    RankAfter(rank->frozen_until_ms - now_ms_, rank, what);
  });
}

void SimFleet::WatchLease(Host& host, const std::shared_ptr<Rank>& rank) {
  const int64_t stop_at_ms = rank->stop_at_ms;
  After(std::max<int64_t>(0, stop_at_ms - now_ms_), [this, &host, rank, stop_at_ms] {
    if (rank->stop_at_ms != stop_at_ms || Has(PlantedBug::kRankIgnoresItsLease)) return;
    if (Has(PlantedBug::kAgentProlongsAnEndedLease)) {  // its watchdog is late
      const int64_t late_ms = Number(0, 4000);
      return After(late_ms, [this, &host, rank, stop_at_ms] {
        if (rank->stop_at_ms == stop_at_ms) ExitUnlessFrozen(host, rank);
      });
    }
    ExitUnlessFrozen(host, rank);
  });
}

void SimFleet::ExitUnlessFrozen(Host& host, const std::shared_ptr<Rank>& rank) {
  if (now_ms_ < rank->frozen_until_ms) {
    return After(rank->frozen_until_ms - now_ms_,
                 [this, &host, rank] { ExitUnlessFrozen(host, rank); });
  }
  Exit(host, rank, 75);
}

void SimFleet::Exit(Host& host, const std::shared_ptr<Rank>& rank, int code, int signal) {
  if (!rank->alive) return;
  rank->alive = false;
  rank->exiting = true;
  const int64_t pid = host.agent.pid;
  After(Number(1, 20), [this, &host, rank, code, signal, pid] {
    if (host.agent.pid != pid) return;
    rank->exiting = false;
    const int status = signal != 0 ? signal : code << 8;
    Happened(host, RankExited{rank->generation, rank->rank, status, ""});
    Reap(host);
  });
}

void SimFleet::DialAgent(Host& host, const std::shared_ptr<Rank>& rank) {
  if (!rank->alive || rank->stream != 0 || host.dead) return;
  if (host.agent.stream == 0 || !host.agent.alive || now_ms_ < rank->frozen_until_ms) {
    return After(100, [this, &host, rank] { DialAgent(host, rank); });
  }
  rank->stream = ++streams_;
  TellLease(host, rank);
  proto::WorkerReport report;
  report.mutable_register_()->set_host(absl::StrCat("h", host.index));
  report.mutable_register_()->set_pid(rank->pid);
  report.mutable_register_()->set_version(kSimVersion);
  report.mutable_register_()->set_world_size(rank->world_size);
  if (rank->register_sequence == 0) rank->register_sequence = ++rank->sequence;
  report.set_sequence(rank->register_sequence);
  SendFromRank(host, rank, report);
  for (const proto::WorkerReport& each : rank->unacknowledged) SendFromRank(host, rank, each);
}

void SimFleet::SendFromRank(Host& host, const std::shared_ptr<Rank>& rank,
                            proto::WorkerReport report) {
  report.set_rank(rank->rank);
  report.set_generation(rank->generation);
  proto::AgentReport envelope;
  envelope.mutable_from_rank()->set_stream(rank->stream);
  report.SerializeToString(envelope.mutable_from_rank()->mutable_report());
  SendUp(host, envelope);
}

void SimFleet::Say(Host& host, const std::shared_ptr<Rank>& rank, proto::WorkerReport report) {
  report.set_sequence(++rank->sequence);
  rank->unacknowledged.push_back(report);
  if (rank->stream != 0) SendFromRank(host, rank, report);
}

void SimFleet::TakeRankOrder(Host& host, const std::shared_ptr<Rank>& rank,
                             const proto::Order& order) {
  if (now_ms_ < rank->frozen_until_ms) {  // it reads it once it runs again
    const int64_t stream = rank->stream;
    return After(rank->frozen_until_ms - now_ms_, [this, &host, rank, stream, order] {
      if (rank->alive && rank->stream == stream) TakeRankOrder(host, rank, order);
    });
  }
  while (!rank->unacknowledged.empty() &&
         rank->unacknowledged.front().sequence() <= order.acknowledged()) {
    rank->unacknowledged.pop_front();
  }
  if (rank->finished && order.acknowledged() >= rank->finished_sequence) {
    return Exit(host, rank, 0);
  }
  if (order.has_abort() && !Has(PlantedBug::kRankIgnoresAnAbort)) return Exit(host, rank, 75);
  if (order.has_train() && !rank->trains) Load(host, rank, order.train());
  if (order.has_begin()) rank->begun = true;
  if (order.has_commit()) Publish(host, rank, order.commit());
  if (order.has_save_over() && order.save_over().number() == rank->saves) {
    rank->saving = false;
    // The last step is worth trying again.
    if (rank->step >= kSteps && !order.save_over().committed()) Save(host, rank);
  }
}

void SimFleet::Load(Host& host, const std::shared_ptr<Rank>& rank, const proto::Train& train) {
  rank->trains = true;
  const std::string& folder = train.load_checkpoint();
  const size_t dash = folder.rfind('-');
  rank->step = dash == std::string::npos ? 0 : std::stoll(folder.substr(dash + 1));
  if (Has(PlantedBug::kRankLoadsAnotherCheckpoint)) rank->step += kSaveEvery;
  if (rank->step > 0 && disk_.generation_of_step.count(rank->step) == 0) {
    Broken(absl::StrCat("rank ", rank->rank, " loads step ", rank->step, ", which nobody saved"));
  }
  // Training stops at each save until it is over: no more than an interval can be lost.
  if (furthest_step_ - rank->step > kSaveEvery) {
    Broken(absl::StrCat("rank ", rank->rank, " begins after step ", rank->step, ", though step ",
                        furthest_step_, " was done"));
  }
  RankAfter(Number(5, 200), rank, [this, &host, rank] {
    rank->ready = true;
    proto::WorkerReport report;
    report.mutable_ready()->set_after_step(rank->step);
    Say(host, rank, report);
  });
}

// ---- training: all ranks of a generation together ----

void SimFleet::StepAll() {
  std::map<int64_t, std::vector<std::pair<Host*, std::shared_ptr<Rank>>>> groups;
  std::map<int64_t, int> alive;  // ranks of a generation, whether or not they have begun
  for (Host& host : hosts_) {
    for (const auto& rank : host.ranks) {
      if (!rank->alive) continue;
      ++alive[rank->generation];
      if (rank->begun) groups[rank->generation].emplace_back(&host, rank);
    }
  }
  for (const auto& [generation, group] : groups) {
    const int world_size = group.front().second->world_size;
    if (alive[generation] < world_size) {
      LosePeers(group);
    } else if (static_cast<int>(group.size()) == world_size) {
      StepGroup(group);
    }
  }
  After(options_.step_ms, [this] { StepAll(); });
}

void SimFleet::StepGroup(const std::vector<std::pair<Host*, std::shared_ptr<Rank>>>& group) {
  const auto& first = group.front().second;
  for (const auto& [host, rank] : group) {
    // A step is a collective: whoever is frozen, or reached by no one, holds all.
    if (now_ms_ < rank->frozen_until_ms || !IsUp(*host) || rank->saving || rank->finished) return;
    if (rank->step != first->step) return;
  }
  if (first->step >= kSteps) {  // which is saved
    for (const auto& [host, rank] : group) Finish(*host, rank);
    return;
  }
  for (const auto& [host, rank] : group) {
    ++rank->step;
    furthest_step_ = std::max(furthest_step_, rank->step);
    proto::WorkerReport report;
    report.mutable_step()->set_step(rank->step);
    Say(*host, rank, report);
    if (rank->step % kSaveEvery == 0 || rank->step >= kSteps) Save(*host, rank);
  }
}

void SimFleet::Finish(Host& host, const std::shared_ptr<Rank>& rank) {
  proto::WorkerReport finished;
  finished.mutable_finished()->set_step(rank->step);
  Say(host, rank, finished);
  rank->finished = true;
  rank->finished_sequence = rank->sequence;
}

void SimFleet::LosePeers(const std::vector<std::pair<Host*, std::shared_ptr<Rank>>>& group) {
  for (const auto& [host, rank] : group) {
    if (rank->finished || now_ms_ < rank->frozen_until_ms || !Chance(10)) continue;
    proto::WorkerReport report;
    report.mutable_fault()->set_code(static_cast<int>(absl::StatusCode::kUnavailable));
    report.mutable_fault()->set_message("a peer is gone");
    Say(*host, rank, report);
    Host* const of = host;
    After(Number(20, 500), [this, of, rank = rank] { Exit(*of, rank, 1); });
  }
}

void SimFleet::Save(Host& host, const std::shared_ptr<Rank>& rank) {
  rank->saving = true;
  const int64_t number = ++rank->saves;
  const int64_t step = rank->step;
  RankAfter(Number(1, 60), rank, [this, &host, rank, number, step] {
    proto::WorkerReport report;
    report.mutable_shard()->set_step(step);
    report.mutable_shard()->set_number(number);
    report.mutable_shard()->set_file(absl::StrCat("rank-", rank->rank));
    Say(host, rank, report);
    if (Has(PlantedBug::kRankPublishesWithoutAGrant) && rank->rank == 0) {
      proto::Commit commit;
      commit.set_step(step);
      commit.set_number(number);
      for (int i = 1; i < rank->world_size; ++i) commit.add_shards();  // some may be missing
      PublishNow(host, rank, commit);
    }
  });
}

void SimFleet::Publish(Host& host, const std::shared_ptr<Rank>& rank, const proto::Commit& commit) {
  if (commit.number() != rank->saves || !rank->saving) return;
  RankAfter(Number(1, 40), rank, [this, &host, rank, commit] { PublishNow(host, rank, commit); });
}

void SimFleet::PublishNow(Host& host, const std::shared_ptr<Rank>& rank,
                          const proto::Commit& commit) {
  // The store refuses a generation once a newer one has published.
  for (const auto& [step, generation] : disk_.generation_of_step) {
    if (generation > rank->generation) return;
  }
  if (commit.shards_size() != rank->world_size) {
    return Broken(absl::StrCat("step ", commit.step(), " is published with ", commit.shards_size(),
                               " of ", rank->world_size, " shards"));
  }
  disk_.generation_of_step[commit.step()] = rank->generation;
  proto::WorkerReport report;
  report.mutable_committed()->set_step(commit.step());
  report.mutable_committed()->set_folder(absl::StrCat("step-", commit.step()));
  Say(host, rank, report);
}

}  // namespace weft
