// The simulated fleet itself (fleet_sim.h): its world, in one thread and in virtual time. Its parts
// are in fleet_coordinator.cc, fleet_links.cc, fleet_hosts.cc (agents, ranks, training) and
// fleet_promises.cc (faults and what has to hold).
#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/driver.h"
#include "launcher/agent/host_agent.h"
#include "tests/coordinator/fleet_sim.h"
#include "tests/coordinator/sim_parts.h"

namespace weft {

inline constexpr int64_t kLeaseMs = 4000;
inline constexpr int64_t kTickMs = 50;
inline constexpr int64_t kLookMs = 300;  // worker/process/link.cc looks at its lease every 250
inline constexpr int64_t kSteps = 100;
inline constexpr int64_t kSaveEvery = 10;
inline constexpr int64_t kFaultsUntilMs = 30000;
inline constexpr int64_t kStartedUnixMs = 1700000000000;
inline constexpr char kSimVersion[] = "sim";

class SimFleet {
 public:
  explicit SimFleet(const SimOptions& options);
  ~SimFleet();

  SimResult Run();

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
  void RemoveJournal() const;
  void StartCoordinator();
  void CrashCoordinator(int64_t away_ms);
  void Submit();
  void EveryTick();
  void RunCoordinator();
  void CoordinatorSoon();

  // ---- links ----
  bool IsUp(const Host& host) const { return now_ms_ >= host.cut_until_ms && !host.dead; }

  void Carry(Host& host, int64_t stream, const std::function<void()>& what);
  void Arrive(Host& host, int64_t stream, const std::function<void()>& what);
  void BreakStream(Host& host);
  void Dial(Host& host);
  void SendUp(Host& host, const proto::AgentReport& report);
  void Hear(Host& host, int64_t stream, const proto::AgentReport& report);
  void HearRank(Host& host, int64_t stream, const proto::FromRank& message);
  bool IsLostByABug(Host& host, const proto::AgentOrder& order);
  void GrantTooEarly(Host& host, int64_t rank_stream, const proto::WorkerReport& report);

  // ---- agents ----
  void StartAgent(Host& host);
  void KillAgent(Host& host);
  void Beat(Host& host, int64_t stream);
  void SendHeartbeat(Host& host);
  void Happened(Host& host, const HostFact& fact);
  void Obey(Host& host);
  void StartRanks(Host& host);
  void KillRanks(Host& host, int64_t generation);
  void Reap(Host& host);
  void PassOn(Host& host, const proto::AgentOrder& order);
  void TakeOrder(Host& host, const proto::AgentOrder& order);
  void TakeLease(Host& host, const proto::AgentLease& lease);
  void WatchAgentLease(Host& host, int64_t delay_ms);
  void TellLease(Host& host, const std::shared_ptr<Rank>& rank);

  // ---- ranks ----
  void RankAfter(int64_t delay_ms, const std::shared_ptr<Rank>& rank,
                 const std::function<void()>& what);
  void WatchLease(Host& host, const std::shared_ptr<Rank>& rank);
  void ExitUnlessFrozen(Host& host, const std::shared_ptr<Rank>& rank);
  void Exit(Host& host, const std::shared_ptr<Rank>& rank, int code, int signal = 0);
  void DialAgent(Host& host, const std::shared_ptr<Rank>& rank);
  void SendFromRank(Host& host, const std::shared_ptr<Rank>& rank, proto::WorkerReport report);
  void Say(Host& host, const std::shared_ptr<Rank>& rank, proto::WorkerReport report);
  void TakeRankOrder(Host& host, const std::shared_ptr<Rank>& rank, const proto::Order& order);
  void Load(Host& host, const std::shared_ptr<Rank>& rank, const proto::Train& train);

  // ---- training: all ranks of a generation together ----
  void StepAll();
  void StepGroup(const std::vector<std::pair<Host*, std::shared_ptr<Rank>>>& group);
  void LosePeers(const std::vector<std::pair<Host*, std::shared_ptr<Rank>>>& group);
  void Save(Host& host, const std::shared_ptr<Rank>& rank);
  void Finish(Host& host, const std::shared_ptr<Rank>& rank);
  void Publish(Host& host, const std::shared_ptr<Rank>& rank, const proto::Commit& commit);
  void PublishNow(Host& host, const std::shared_ptr<Rank>& rank, const proto::Commit& commit);

  // ---- faults ----
  Host& AnyHost() { return hosts_[static_cast<size_t>(Number(0, options_.hosts - 1))]; }

  void PlanFaults();
  void DoFault();
  static void Freeze(Rank& rank, int64_t until_ms);
  void KillRank(Host& host);
  void Repeat(Host& host);
  void SpeakOfOthers(Host& host);
  void Vouch(Host& host);
  proto::AgentReport GoneReport(int64_t generation, const std::string& machine) const;
  void Die(Host& host);

  // ---- promises ----
  bool Trains(const Rank& rank) const;
  void Check();
  // A run without further faults has ended by then: leases, re-planning, growth and all steps.
  int64_t EndOfTimeMs() const { return kFaultsUntilMs + 180000 + 6 * kSteps * options_.step_ms; }
  void CheckTrainers();
  void CheckCulprit(const Job& job);
  void CountLaunches(const Job& job);
  bool IsThrough() const;
  void Finish();
  void Note(const std::string& what) const;

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
  std::set<std::string> faulty_;  // hosts at which something went wrong
  bool coordinator_failed_ = false;
  int64_t furthest_step_ = 0;                             // that any rank has done
  std::map<int64_t, int64_t> last_arrival_ms_;            // by stream
  std::map<int64_t, std::map<int64_t, int64_t>> ids_of_;  // the driver's, by stream and rank's
  Disk disk_;
  SimResult result_;
};

}  // namespace weft
