// A week of a service: one event after the other happens to one job of two hosts of three, and
// nothing that was trained is trained again, but for what comes without a word. The gate has each
// event once; WEFT_SERVICE_EVENTS=n draws any n, WEFT_SERVICE_SEED=random others. A line is printed
// for each event.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <random>
#include <set>

#include "tests/hosts/service_on_hosts.h"

namespace weft {
namespace {

constexpr int64_t kStepsBetweenEvents = 12;  // a checkpoint lies in between
constexpr double kAwayS = 10;                // longer than the job's lease, which ShortTimes says

enum class Happens { kAgentTerm, kWeftdAway, kGrows, kShrinks, kMoves, kTwo, kRankDies };

struct ServiceEvent {
  const char* name;
  Happens what;
};

constexpr ServiceEvent kServiceEvents[] = {
    {"TERM of an agent", Happens::kAgentTerm},
    {"weftd is away, in good order", Happens::kWeftdAway},
    {"resize up", Happens::kGrows},
    {"resize down", Happens::kShrinks},
    {"drain --move", Happens::kMoves},
    {"an agent and weftd are told to end at once", Happens::kTwo},
    {"kill -9 of a rank", Happens::kRankDies},
};

// The job has one host more after `kGrows`, so that is followed by its opposite.
std::vector<ServiceEvent> ChooseServiceEvents(std::minstd_rand& random) {
  std::vector<ServiceEvent> events(std::begin(kServiceEvents), std::end(kServiceEvents));
  const int drawn = NumberFromEnvironment("WEFT_SERVICE_EVENTS", 0);
  if (drawn == 0) return events;
  events.clear();
  while (static_cast<int>(events.size()) < drawn) {
    std::vector<ServiceEvent> round(std::begin(kServiceEvents), std::end(kServiceEvents));
    std::shuffle(round.begin(), round.end(), random);
    events.insert(events.end(), round.begin(), round.end());
  }
  events.resize(static_cast<size_t>(drawn));
  return events;
}

class ServiceEvents : public ServiceOnHosts {
 protected:
  // Few steps, which are trained once more for their losses.
  std::string Pace() const override { return "step.begin:100"; }

  int HostOfJob(std::minstd_rand& random) {
    const std::vector<std::string> hosts = HostsOf(id_);
    EXPECT_FALSE(hosts.empty()) << ServiceWords();
    return hosts.empty() ? 1 : hosts[random() % hosts.size()].back() - '0';
  }
  void EndAgent(int host) {
    SignalThere(host, "weft agent --standing", SIGTERM);
    EXPECT_TRUE(agents_[host]->Wait(kPatienceS).has_value()) << agents_[host]->Stderr();
  }
  void EndWeftd() {
    SignalThere(1, "weftd --socket", SIGTERM);
    EXPECT_TRUE(weftd_->Wait(kPatienceS).has_value()) << weftd_->Stderr();
  }
  void AwaitHosts() {
    EXPECT_TRUE(Eventually(kPatienceS, [&] { return HostsPresent() == 3; })) << ServiceWords();
  }
  // Between one host and three.
  void Resize(int by) {
    int hosts = static_cast<int>(HostsOf(id_).size()) + by;
    if (hosts < 1 || hosts > 3) hosts -= 2 * by;
    const auto answer = Weft("ann", 2, absl::StrCat("resize ", id_, " ", hosts));
    EXPECT_EQ(answer.exit_code, 0) << answer.err;
  }
  void Inject(const ServiceEvent& event, std::minstd_rand& random);

  std::string id_;
};

void ServiceEvents::Inject(const ServiceEvent& event, std::minstd_rand& random) {
  const int host = HostOfJob(random);
  switch (event.what) {
    case Happens::kAgentTerm:
      EndAgent(host);
      StartAgent(host);
      break;
    case Happens::kWeftdAway:
      EndWeftd();
      SleepSeconds(kAwayS);
      StartWeftd();
      break;
    case Happens::kGrows:
      Resize(1);
      break;
    case Happens::kShrinks:
      Resize(-1);
      break;
    case Happens::kMoves:
      Operator(absl::StrCat("drain --move h", host));
      EXPECT_TRUE(Eventually(kPatienceS, [&] {
        const std::vector<std::string> hosts = HostsOf(id_);
        return std::count(hosts.begin(), hosts.end(), HostBed::Name(host)) == 0;
      })) << ServiceWords();
      Operator(absl::StrCat("undrain h", host));
      break;
    case Happens::kTwo:
      SignalThere(host, "weft agent --standing", SIGTERM);
      EndWeftd();
      SleepSeconds(kAwayS);
      StartWeftd();
      EXPECT_TRUE(agents_[host]->Wait(kPatienceS).has_value()) << agents_[host]->Stderr();
      StartAgent(host);
      break;
    case Happens::kRankDies:
      EXPECT_EQ(
          bed_->Run(host, "kill -9 $(pgrep -f '^weft-worker --generation' | head -1)").exit_code,
          0);
      break;
  }
  AwaitHosts();
}

TEST_F(ServiceEvents, CostNoStepButByAnUnplannedDeath) {
  std::minstd_rand random(SeedFromEnvironment("WEFT_SERVICE_SEED", 1));
  const std::string job =
      WriteJob("", OnThreeHosts() + ", nodes: 2, slots: 2", ShortTimes(), 100000);
  id_ = Submit("ann", 2, job, folder());
  ASSERT_FALSE(id_.empty());
  int number = 0;
  for (const ServiceEvent& event : ChooseServiceEvents(random)) {
    const int64_t reached = Steps().empty() ? 0 : Steps().back().step;
    ASSERT_TRUE(WaitForStep(reached + kStepsBetweenEvents)) << ServiceWords();
    const size_t known = Steps().size();
    const double from_s = NowSeconds();
    const bool ends_generation = event.what != Happens::kWeftdAway;
    const int64_t generation = LastGeneration();
    Inject(event, random);
    ASSERT_TRUE(WaitForStep(1, generation + (ends_generation ? 1 : 0))) << event.name << "\n"
                                                                        << ServiceWords();
    const StepsLost lost = StepsLostFrom(folder(), known);
    std::printf("%2d: %s: %lld steps lost at step %lld, on again in %.0f s\n", ++number, event.name,
                static_cast<long long>(lost.steps), static_cast<long long>(lost.at_step),
                NowSeconds() - from_s);
    std::fflush(stdout);
    EXPECT_EQ(lost.beyond_commits, 0) << event.name << "\n" << ServiceWords();
    if (event.what != Happens::kRankDies) {
      EXPECT_EQ(lost.steps, 0) << event.name << "\n" << ServiceWords();
    }
  }
  EXPECT_EQ(Weft("ann", 1, "stop " + id_).exit_code, 0);
  ASSERT_TRUE(Ends(id_, "SUSPENDED", kPatienceS));
  // The layouts of one, two and three hosts round differently.
  const std::vector<StepMetrics> steps = Steps();
  std::filesystem::rename(folder(), folder() + "-events");
  ExpectNear(CurveOfOneHost(steps.back().step), steps);
}

}  // namespace
}  // namespace weft
