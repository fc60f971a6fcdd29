#include "tests/coordinator/fleet_sim.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "coordinator/driver.h"
#include "coordinator/hosts.h"
#include "launcher/agent/host_agent.h"
#include "plan/errors.h"
#include "process/log.h"
#include "proto/job_text.h"
#include "tests/coordinator/sim_parts.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

constexpr int64_t kLeaseMs = 4000;
constexpr int64_t kHeartbeatMs = kLeaseMs / 8;
constexpr int64_t kTickMs = 50;
constexpr int64_t kStepMs = 40;
constexpr int64_t kLookMs = 300;  // worker/process/link.cc looks at its lease every 250
constexpr int64_t kSteps = 120;
constexpr int64_t kSaveEvery = 10;
constexpr int64_t kFaultsUntilMs = 30000;
// By then a run without further faults has ended: leases, re-planning, growth and all steps.
constexpr int64_t kEndOfTimeMs = kFaultsUntilMs + 180000;
constexpr char kVersion[] = "sim";

class Fleet {
 public:
  explicit Fleet(const SimOptions& options) : options_(options), random_(options.seed) {
    char name[64];
    std::snprintf(name, sizeof(name), "/dev/shm/weft-sim-%d-%u.db", getpid(), options.seed);
    journal_ = name;
    RemoveJournal();
    for (int i = 0; i < options.hosts; ++i) {
      hosts_.emplace_back();
      hosts_.back().index = i;
      hosts_.back().machine = absl::StrCat("machine-", i);
    }
  }
  ~Fleet() {
    driver_.reset();
    RemoveJournal();
  }

  SimResult Run() {
    SetLeastLogLevel(options_.tells ? LogLevel::kInfo : LogLevel::kNone);
    StartCoordinator();
    Submit();
    for (Host& host : hosts_) After(Number(0, 200), [this, &host] { StartAgent(host); });
    if (options_.faults) PlanFaults();
    EveryTick();
    StepAll();
    while (!events_.empty() && result_.broken.empty() && !IsThrough()) {
      Timed next = events_.top();
      events_.pop();
      now_ms_ = next.at_ms;
      if (now_ms_ > kEndOfTimeMs) break;
      next.what();
      Check();
    }
    Finish();
    return result_;
  }

 private:
  // ---- time and chance ----
  struct Timed {
    int64_t at_ms;
    int64_t number;
    std::function<void()> what;
    bool operator<(const Timed& other) const {
      return std::tie(at_ms, number) > std::tie(other.at_ms, other.number);
    }
  };
  void After(int64_t delay_ms, std::function<void()> what) {
    events_.push({now_ms_ + delay_ms, ++count_, std::move(what)});
  }
  int64_t Number(int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random_);
  }
  bool Chance(int percent) { return Number(0, 99) < percent; }
  bool Has(PlantedBug bug) const { return options_.bug == bug; }
  void Broken(const std::string& what) {
    result_.broken.push_back(absl::StrCat(now_ms_, " ms: ", what));
  }

  // ---- the coordinator ----
  void RemoveJournal() const {
    for (const char* end : {"", "-wal", "-shm"}) {
      std::error_code error;
      std::filesystem::remove(journal_ + end, error);
    }
  }

  void StartCoordinator() {
    auto journal = Journal::Open(journal_);
    CHECK(journal.ok());
    DriverOptions options;
    options.version = kVersion;
    options.lease_ms = kLeaseMs;
    options.own_thread = false;
    options.now_ms = [this] { return now_ms_ + 1; };  // 0 would mean "never"
    auto driver = Driver::Start(*std::move(journal), std::move(options));
    if (!driver.ok()) return Broken(absl::StrCat("the journal: ", driver.status().message()));
    driver_ = *std::move(driver);
    ++incarnation_;
    if (known_) {
      // Everything that anybody was told of is there again.
      Job replayed = driver_->job();
      if (replayed.generation.number < known_->generation.number ||
          replayed.newest().step < known_->newest().step) {
        Broken("the coordinator has forgotten what it had journaled");
      }
    }
  }

  void CrashCoordinator(int64_t away_ms) {
    if (driver_ == nullptr) return;
    known_ = driver_->job();
    ++incarnation_;  // whatever it still says reaches nobody
    driver_.reset();
    if (Has(PlantedBug::kJournalForgets)) RemoveJournal();
    for (Host& host : hosts_) BreakStream(host);
    After(away_ms, [this] { StartCoordinator(); });
  }

  void Submit() {
    JobSpec job = SampleJob();
    job.training.steps = kSteps;
    job.training.global_batch_size = 12;
    job.cluster.nodes = options_.hosts;
    job.cluster.slots_per_node = 1;
    job.hosts.least_nodes = options_.least_hosts;
    job.layout.tp = job.layout.pp = 1;
    job.fault_tolerance.max_restarts = 1000;
    job.checkpoint.interval = kSaveEvery;
    proto::SubmitJobRequest request;
    request.set_request_id("r1");
    request.set_job(JobText(job));
    request.set_run_folder("/run");
    driver_->Submit(request,
                    [](const absl::StatusOr<proto::SubmitJobReply>& reply) { CHECK(reply.ok()); });
    driver_->RunOnce();
  }

  void EveryTick() {
    RunCoordinator();
    After(kTickMs, [this] { EveryTick(); });
  }
  // A disk that hangs holds the driver, but not those who grant leases.
  void RunCoordinator() {
    if (driver_ != nullptr && now_ms_ >= held_until_ms_) driver_->RunOnce();
  }
  void CoordinatorSoon() {
    After(Number(0, 3), [this] { RunCoordinator(); });
  }

  // ---- links ----
  bool IsUp(const Host& host) const { return now_ms_ >= host.cut_until_ms && !host.dead; }

  // Runs at the other end unless the stream breaks meanwhile; in order.
  void Carry(Host& host, int64_t stream, const std::function<void()>& what) {
    int64_t& last_ms = last_arrival_ms_[stream];
    last_ms = std::max(last_ms, now_ms_ + Number(0, Chance(2) ? 300 : 10));
    if (now_ms_ < host.cut_until_ms) last_ms = std::max(last_ms, host.cut_until_ms + 5);
    After(last_ms - now_ms_, [this, &host, stream, what] { Arrive(host, stream, what); });
  }
  // A message that was under way when the link was cut arrives once it is up again.
  void Arrive(Host& host, int64_t stream, const std::function<void()>& what) {
    if (host.dead || host.agent.stream != stream) return;
    if (IsUp(host)) return what();
    const int64_t wait_ms = host.cut_until_ms + 5 - now_ms_;
    int64_t& last_ms = last_arrival_ms_[stream];
    last_ms = std::max(last_ms, now_ms_ + wait_ms);
    After(wait_ms, [this, &host, stream, what] { Arrive(host, stream, what); });
  }

  void BreakStream(Host& host) {
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

  void Dial(Host& host) {
    Agent& agent = host.agent;
    if (!agent.alive || agent.stream != 0 || host.dead) return;
    Note(absl::StrCat("h", host.index, " dials"));
    if (driver_ == nullptr || !IsUp(host)) return After(100, [this, &host] { Dial(host); });
    agent.stream = ++streams_;
    const int64_t stream = agent.stream;
    const int incarnation = incarnation_;
    const auto send = [this, &host, stream, incarnation](const proto::AgentOrder& order) {
      if (incarnation != incarnation_) return;
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
    hello.mutable_hello()->set_version(kVersion);
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

  void SendUp(Host& host, const proto::AgentReport& report) {
    const int64_t stream = host.agent.stream;
    Carry(host, stream, [this, &host, stream, report] {
      if (driver_ == nullptr) return;
      Hear(host, stream, report);
      CoordinatorSoon();
    });
  }

  // As the service does it.
  void Hear(Host& host, int64_t stream, const proto::AgentReport& report) {
    if (report.has_heartbeat()) {
      const auto lease_ms = driver_->leases().Grant(stream, now_ms_ + 1);
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
      HearRank(stream, report.from_rank());
    } else if (report.has_rank_hung_up()) {
      const auto id = ids_of_[stream].find(report.rank_hung_up().stream());
      if (id == ids_of_[stream].end()) return;
      driver_->Detach(id->second);
      ids_of_[stream].erase(id);
    } else {
      driver_->TakeAgentReport(stream, report);
    }
  }

  void HearRank(int64_t stream, const proto::FromRank& message) {
    const auto [id, is_new] = ids_of_[stream].try_emplace(message.stream(), 0);
    if (is_new) {
      id->second = ++streams_;
      driver_->Attach(id->second, {.agent = stream, .stream = message.stream()});
    }
    proto::WorkerReport report;
    CHECK(report.ParseFromString(message.report()));
    driver_->Report(id->second, report);
  }

  // ---- agents ----
  void StartAgent(Host& host) {
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

  void KillAgent(Host& host) {
    if (!host.agent.alive) return;
    host.agent.alive = false;
    BreakStream(host);
    After(Chance(70) ? Number(20, 1500) : Number(1500, 15000), [this, &host] { StartAgent(host); });
  }

  void Beat(Host& host, int64_t stream) {
    Agent& agent = host.agent;
    if (!agent.alive || agent.stream != stream) return;
    if (now_ms_ < host.frozen_until_ms) {
      return After(host.frozen_until_ms - now_ms_, [this, &host, stream] { Beat(host, stream); });
    }
    proto::AgentReport report;
    report.mutable_heartbeat()->set_sent_boot_ms(now_ms_);
    for (const auto& rank : host.ranks) {
      const bool speaks = rank->alive && now_ms_ >= rank->frozen_until_ms && rank->stream != 0;
      if (speaks) report.mutable_heartbeat()->add_heard(rank->stream);
    }
    SendUp(host, report);
    After(kHeartbeatMs, [this, &host, stream] { Beat(host, stream); });
  }

  void Happened(Host& host, const HostFact& fact) {
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
      if (agent.stream != 0) SendUp(host, report);
    }
    Obey(host);
  }

  void Obey(Host& host) {
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

  void StartRanks(Host& host) {
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

  void KillRanks(Host& host, int64_t generation) {
    if (Has(PlantedBug::kAgentSaysGoneTooEarly)) {
      After(1, [this, &host, generation] { Happened(host, NothingLeft{generation}); });
      After(1500, [&host, generation] {
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

  // Once no process of the generation is there, the agent finds nothing left.
  void Reap(Host& host) {
    const int64_t generation = host.agent.mind.generation;
    const bool left = std::any_of(host.ranks.begin(), host.ranks.end(), [&](const auto& rank) {
      return rank->alive && !Has(PlantedBug::kRankIgnoresAnAbort);
    });
    if (!left && host.agent.mind.phase != GroupPhase::kNone) {
      Happened(host, NothingLeft{generation});
      for (const proto::AgentOrder& order : std::exchange(host.agent.waiting, {})) {
        TakeOrder(host, order);
      }
    }
  }

  void PassOn(Host& host, const proto::AgentOrder& order) {
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
    each(order.hang_up().stream(), [&](const std::shared_ptr<Rank>& rank) {
      rank->stream = 0;
      const auto why = static_cast<absl::StatusCode>(order.hang_up().code());
      const bool again =
          why == absl::StatusCode::kUnavailable || why == absl::StatusCode::kResourceExhausted;
      if (!again) Exit(host, rank, 75);
    });
  }

  void TakeOrder(Host& host, const proto::AgentOrder& order) {
    Agent& agent = host.agent;
    if (!agent.alive) return;
    while (!agent.unacknowledged.empty() &&
           agent.unacknowledged.front().sequence() <= order.acknowledged()) {
      agent.unacknowledged.pop_front();
    }
    if (order.has_to_ranks() || order.has_hang_up()) return PassOn(host, order);
    if (order.has_lease()) TakeLease(host, order.lease());
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
    if (order.has_stop_group() && waits &&
        order.stop_group().generation() > agent.mind.generation) {
      agent.waiting.push_back(order);
    } else if (order.has_stop_group()) {
      Happened(host,
               StopOrdered{order.stop_group().generation(), order.stop_group().reason(), now_ms_});
    }
  }

  void TakeLease(Host& host, const proto::AgentLease& lease) {
    Agent& agent = host.agent;
    const int64_t lease_ms = lease.lease_ms() * (Has(PlantedBug::kAgentDoublesTheLease) ? 2 : 1);
    agent.lease_end_ms = std::max(agent.lease_end_ms, lease.sent_boot_ms() + lease_ms);
    agent.rank_stop_at_ms = lease.sent_boot_ms() + lease_ms * 8 / 10;
    for (const auto& rank : host.ranks) TellLease(host, rank);
    WatchAgentLease(host, agent.lease_end_ms - now_ms_);
  }

  void WatchAgentLease(Host& host, int64_t delay_ms) {
    const int64_t end_ms = host.agent.lease_end_ms;
    const int64_t pid = host.agent.pid;
    After(std::max<int64_t>(0, delay_ms), [this, &host, end_ms, pid] {
      if (host.agent.pid != pid || host.agent.lease_end_ms != end_ms) return;
      if (now_ms_ >= host.frozen_until_ms) return Happened(host, LeaseEnded{});
      // It looks at its lease at some time after it runs again, perhaps after a new one has come.
      WatchAgentLease(host, host.frozen_until_ms - now_ms_ + Number(0, 1000));
    });
  }

  void TellLease(Host& host, const std::shared_ptr<Rank>& rank) {
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
  void RankAfter(int64_t delay_ms, const std::shared_ptr<Rank>& rank,
                 const std::function<void()>& what) {
    After(delay_ms, [this, rank, what] {
      if (!rank->alive) return;
      if (now_ms_ >= rank->frozen_until_ms) return what();
      RankAfter(rank->frozen_until_ms - now_ms_, rank, what);
    });
  }

  void WatchLease(Host& host, const std::shared_ptr<Rank>& rank) {
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
  void ExitUnlessFrozen(Host& host, const std::shared_ptr<Rank>& rank) {
    if (now_ms_ < rank->frozen_until_ms) {
      return After(rank->frozen_until_ms - now_ms_,
                   [this, &host, rank] { ExitUnlessFrozen(host, rank); });
    }
    Exit(host, rank, 75);
  }

  void Exit(Host& host, const std::shared_ptr<Rank>& rank, int code, int signal = 0) {
    if (!rank->alive) return;
    rank->alive = false;
    const int64_t pid = host.agent.pid;
    After(Number(1, 20), [this, &host, rank, code, signal, pid] {
      if (host.agent.pid != pid) return;
      const int status = signal != 0 ? signal : code << 8;
      Happened(host, RankExited{rank->generation, rank->rank, status, ""});
      Reap(host);
    });
  }

  void DialAgent(Host& host, const std::shared_ptr<Rank>& rank) {
    if (!rank->alive || rank->stream != 0 || host.dead) return;
    if (host.agent.stream == 0 || !host.agent.alive || now_ms_ < rank->frozen_until_ms) {
      return After(100, [this, &host, rank] { DialAgent(host, rank); });
    }
    rank->stream = ++streams_;
    TellLease(host, rank);
    proto::WorkerReport report;
    report.mutable_register_()->set_host(absl::StrCat("h", host.index));
    report.mutable_register_()->set_pid(rank->pid);
    report.mutable_register_()->set_version(kVersion);
    report.mutable_register_()->set_world_size(rank->world_size);
    if (rank->register_sequence == 0) rank->register_sequence = ++rank->sequence;
    report.set_sequence(rank->register_sequence);
    SendFromRank(host, rank, report);
    for (const proto::WorkerReport& each : rank->unacknowledged) SendFromRank(host, rank, each);
  }

  void SendFromRank(Host& host, const std::shared_ptr<Rank>& rank, proto::WorkerReport report) {
    report.set_rank(rank->rank);
    report.set_generation(rank->generation);
    proto::AgentReport envelope;
    envelope.mutable_from_rank()->set_stream(rank->stream);
    report.SerializeToString(envelope.mutable_from_rank()->mutable_report());
    SendUp(host, envelope);
  }

  void Say(Host& host, const std::shared_ptr<Rank>& rank, proto::WorkerReport report) {
    report.set_sequence(++rank->sequence);
    rank->unacknowledged.push_back(report);
    if (rank->stream != 0) SendFromRank(host, rank, report);
  }

  void TakeRankOrder(Host& host, const std::shared_ptr<Rank>& rank, const proto::Order& order) {
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
    if (order.has_save_over() && order.save_over().number() == rank->saves) rank->saving = false;
  }

  void Load(Host& host, const std::shared_ptr<Rank>& rank, const proto::Train& train) {
    rank->trains = true;
    const std::string& folder = train.load_checkpoint();
    const size_t dash = folder.rfind('-');
    rank->step = dash == std::string::npos ? 0 : std::stoll(folder.substr(dash + 1));
    if (Has(PlantedBug::kRankLoadsAnotherCheckpoint)) rank->step += kSaveEvery;
    if (rank->step > 0 && disk_.generation_of_step.count(rank->step) == 0) {
      Broken(absl::StrCat("rank ", rank->rank, " loads step ", rank->step, ", which nobody saved"));
    }
    RankAfter(Number(5, 200), rank, [this, &host, rank] {
      rank->ready = true;
      proto::WorkerReport report;
      report.mutable_ready()->set_after_step(rank->step);
      Say(host, rank, report);
    });
  }

  // ---- training: all ranks of a generation together ----
  void StepAll() {
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
    After(kStepMs, [this] { StepAll(); });
  }

  void StepGroup(const std::vector<std::pair<Host*, std::shared_ptr<Rank>>>& group) {
    const auto& first = group.front().second;
    for (const auto& [host, rank] : group) {
      // A step is a collective: whoever is frozen, or reached by no one, holds all.
      if (now_ms_ < rank->frozen_until_ms || !IsUp(*host) || rank->saving || rank->finished) return;
      if (rank->step != first->step) return;
    }
    for (const auto& [host, rank] : group) {
      ++rank->step;
      proto::WorkerReport report;
      report.mutable_step()->set_step(rank->step);
      Say(*host, rank, report);
      if (rank->step >= kSteps) {
        proto::WorkerReport finished;
        finished.mutable_finished()->set_step(rank->step);
        Say(*host, rank, finished);
        rank->finished = true;
        rank->finished_sequence = rank->sequence;
      } else if (rank->step % kSaveEvery == 0) {
        Save(*host, rank);
      }
    }
  }

  void LosePeers(const std::vector<std::pair<Host*, std::shared_ptr<Rank>>>& group) {
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

  void Save(Host& host, const std::shared_ptr<Rank>& rank) {
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

  void Publish(Host& host, const std::shared_ptr<Rank>& rank, const proto::Commit& commit) {
    if (commit.number() != rank->saves || !rank->saving) return;
    RankAfter(Number(1, 40), rank, [this, &host, rank, commit] { PublishNow(host, rank, commit); });
  }

  void PublishNow(Host& host, const std::shared_ptr<Rank>& rank, const proto::Commit& commit) {
    // The store refuses a generation once a newer one has published.
    for (const auto& [step, generation] : disk_.generation_of_step) {
      if (generation > rank->generation) return;
    }
    if (commit.shards_size() != rank->world_size) {
      return Broken(absl::StrCat("step ", commit.step(), " is published with ",
                                 commit.shards_size(), " of ", rank->world_size, " shards"));
    }
    disk_.generation_of_step[commit.step()] = rank->generation;
    proto::WorkerReport report;
    report.mutable_committed()->set_step(commit.step());
    report.mutable_committed()->set_folder(absl::StrCat("step-", commit.step()));
    Say(host, rank, report);
  }

  // ---- faults ----
  Host& AnyHost() { return hosts_[static_cast<size_t>(Number(0, options_.hosts - 1))]; }

  void PlanFaults() {
    const int64_t faults = Number(0, 6);
    for (int64_t i = 0; i < faults; ++i) {
      After(Number(100, kFaultsUntilMs / 3), [this] { DoFault(); });
    }
  }

  void DoFault() {
    static constexpr std::array<const char*, 9> kNames = {
        "a rank is killed", "ranks stand still", "an agent is killed",
        "a link is cut",    "weftd is killed",   "the disk hangs",
        "a stream breaks",  "a host dies",       "a host stands still"};
    Host& host = AnyHost();
    const int64_t kind = Number(0, kNames.size() - 1);
    const std::string name = kNames[static_cast<size_t>(kind)];
    ++faults_;
    ++result_.faults[name];
    Note(absl::StrCat("fault at h", host.index, ": ", name));
    switch (kind) {
      case 0:
        return KillRank(host);
      case 1: {
        const int64_t until_ms = now_ms_ + Number(100, 12000);
        for (const auto& rank : host.ranks) {
          if (rank->alive && Chance(70)) Freeze(*rank, until_ms);
        }
        return;
      }
      case 2:
        return KillAgent(host);
      case 3:
        host.cut_until_ms = std::max(host.cut_until_ms, now_ms_ + Number(50, 12000));
        return;
      case 4:
        return CrashCoordinator(Number(20, 7000));
      case 5:
        held_until_ms_ = now_ms_ + Number(100, 9000);
        return;
      case 6:
        return BreakStream(host);
      case 7:  // all of a host at once; it comes back
        host.dead = true;
        for (const auto& rank : host.ranks) rank->alive = false;
        BreakStream(host);
        host.agent.alive = false;
        host.agent.pid = 0;
        return After(Number(500, 15000), [this, &host] {
          host.dead = false;
          StartAgent(host);
        });
      default:  // the whole host stands still: its agent and ranks run on afterwards
        host.cut_until_ms = std::max(host.cut_until_ms, now_ms_ + Number(500, 9000));
        host.frozen_until_ms = std::max(host.frozen_until_ms, host.cut_until_ms);
        for (const auto& rank : host.ranks) Freeze(*rank, host.cut_until_ms);
        return;
    }
  }

  // Whoever stands still already does not run on earlier for it.
  static void Freeze(Rank& rank, int64_t until_ms) {
    rank.frozen_until_ms = std::max(rank.frozen_until_ms, until_ms);
  }

  void KillRank(Host& host) {
    for (const auto& rank : host.ranks) {
      if (!rank->alive) continue;
      rank->frozen_until_ms = 0;
      return Exit(host, rank, 0, SIGKILL);
    }
  }

  // ---- promises ----
  // A rank trains that has begun and that nothing has told to stop. One that stood still looks at
  // its lease within kLookMs; what it computes meanwhile it cannot publish.
  bool Trains(const Rank& rank) const {
    const int64_t since_ms = rank.frozen_until_ms > 0 ? rank.frozen_until_ms + kLookMs : 0;
    return rank.alive && rank.begun && !rank.finished && now_ms_ >= since_ms;
  }

  void Check() {
    int64_t newest = 0;
    for (const Host& host : hosts_) {
      for (const auto& rank : host.ranks) {
        if (Trains(*rank)) newest = std::max(newest, rank->generation);
      }
    }
    for (const Host& host : hosts_) {
      for (const auto& rank : host.ranks) {
        if (!Trains(*rank) || rank->generation == newest) continue;
        Broken(absl::StrCat("rank ", rank->rank, " of generation ", rank->generation, " on h",
                            host.index, " trains beside generation ", newest));
      }
    }
    if (driver_ == nullptr) return;
    const Job& job = driver_->job();
    if (job.generation.number < seen_generation_) Broken("a generation's number was used again");
    seen_generation_ = job.generation.number;
    CountLaunches(job);
    if (!options_.faults && job.generation.number > 1) Broken("a restart without a fault");
    // Three faults before the first save may end it; nothing less does.
    if (job.phase == Phase::kFailed && faults_ < kMaxFailuresWithoutProgress) {
      Broken(absl::StrCat("the job failed: ", job.reason));
    }
  }

  void CountLaunches(const Job& job) {
    if (job.generation.phase != GenerationPhase::kLaunched) return;
    if (std::exchange(launched_, job.generation.number) == job.generation.number) return;
    const int before = std::exchange(launched_on_, job.nodes);
    if (before == 0) return;
    result_.shrinks += job.nodes < before ? 1 : 0;
    result_.growths += job.nodes > before ? 1 : 0;
  }

  bool IsThrough() const {
    if (driver_ == nullptr) return false;
    const Job& job = driver_->job();
    return IsOver(job.phase) && job.generation.phase == GenerationPhase::kClosed;
  }

  void Finish() {
    result_.virtual_ms = now_ms_;
    if (driver_ == nullptr || !result_.broken.empty()) return;
    const Job job = driver_->job();
    result_.end = absl::StrCat(PhaseName(job.phase));
    result_.generations = job.generation.number;
    if (!IsThrough()) {
      return Broken(absl::StrCat("the run has not ended: ", PhaseName(job.phase), ", generation ",
                                 job.generation.number, ": ", job.reason));
    }
    for (const Host& host : hosts_) {
      for (const auto& rank : host.ranks) {
        // One that stands still cannot go; it does so before anything else once it runs again.
        // Nor does one that has reached nobody yet: it gives up by itself, and has nothing to do.
        const bool may_be = now_ms_ <= rank->frozen_until_ms || !rank->trains;
        if (rank->alive && !may_be) Broken(absl::StrCat("a process is left on h", host.index));
      }
    }
    driver_.reset();
    StartCoordinator();
    if (driver_ == nullptr) return;
    Job replayed = driver_->job();
    replayed.revision = job.revision;  // a restart is a fact, too
    replayed.offers = job.offers;
    if (!(replayed == job)) Broken("the journal replays to another state");
  }

  void Note(const std::string& what) const {
    if (options_.tells)
      std::fprintf(stderr, "%lld ms: %s\n", static_cast<long long>(now_ms_), what.c_str());
  }

  const SimOptions options_;
  std::mt19937 random_;
  std::string journal_;
  int64_t now_ms_ = 0;
  int64_t count_ = 0;
  std::priority_queue<Timed> events_;
  std::deque<Host> hosts_;
  std::unique_ptr<Driver> driver_;
  int incarnation_ = 0;
  std::optional<Job> known_;
  int64_t held_until_ms_ = 0;
  int64_t streams_ = 0;
  int64_t pids_ = 1000;
  int64_t seen_generation_ = 0;
  int64_t launched_ = 0;  // newest generation that was launched
  int launched_on_ = 0;   // its hosts
  int faults_ = 0;
  std::map<int64_t, int64_t> last_arrival_ms_;            // by stream
  std::map<int64_t, std::map<int64_t, int64_t>> ids_of_;  // the driver's, by stream and rank's
  Disk disk_;
  SimResult result_;
};

}  // namespace

SimResult Simulate(const SimOptions& options) {
  return Fleet(options).Run();
}

}  // namespace weft
