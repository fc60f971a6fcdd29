// The fleet's promises over random lives: hosts come, go, fail and are drained, three users submit,
// pause, resume, resize and drop jobs, in any order. The seed is printed with what breaks.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "coordinator/fleet/fleet.h"

namespace weft {
namespace {

constexpr int kLives = 200;
constexpr int kFacts = 150;

class Life {
 public:
  explicit Life(unsigned seed) : random_(seed) {}

  void Run() {
    for (int i = 0; i < kFacts && !testing::Test::HasFailure(); ++i) {
      now_ms_ += Pick(0, 600'000);
      Tell(NextFact());
      Place();
      CheckShares();
    }
    CheckReplay();
  }

 private:
  int Pick(int least, int most) { return std::uniform_int_distribution<int>(least, most)(random_); }
  std::string Machine() { return "m" + std::to_string(Pick(1, 6)); }
  std::string User(int uid) { return "user" + std::to_string(uid); }
  int64_t Job() { return Pick(1, static_cast<int>(fleet_.newest_job) + 1); }

  FleetEvent NextFact() {
    switch (Pick(0, 12)) {
      case 0:
      case 1: {
        const int uid = Pick(1, 3);
        std::vector<std::string> allows;
        if (Pick(0, 2) == 0) allows.push_back(Pick(0, 1) == 0 ? "*" : User(Pick(1, 3)));
        // A machine keeps its slots: an agent does not change them under a job that has them.
        const std::string machine = Machine();
        HostJoined joined{machine, "h", User(uid), uid, allows, 1 + machine[1] % 4};
        joined.leaves = Pick(0, 4) == 0;
        return joined;
      }
      case 2:
        return HostGone{Machine(), now_ms_};
      case 3:
        return HostFailed{Machine(), now_ms_};
      case 4:
        return HostDrained{Machine(), "work", Pick(0, 1) == 1};
      case 5:
        return HostUndrained{Machine()};
      case 6:
        return PauseAsked{Job()};
      case 7:
        return ResumeAsked{Job()};
      case 8:
        return ResizeAsked{Job(), 1, Pick(1, 4)};
      case 9: {
        const char* ends[] = {"COMPLETED", "FAILED", "SUSPENDED", "CANCELLED"};
        return JobEnded{Job(), ends[Pick(0, 3)], "", now_ms_};
      }
      case 10:
        return JobUnwanted{Job(), Pick(0, 1) == 1, 0, "", now_ms_};
      case 11:
        return JobMoves{Job()};
      default:
        return JobQueued{fleet_.newest_job + 1, Request()};
    }
  }

  FleetRequest Request() {
    const int uid = Pick(1, 3);
    const int nodes = Pick(1, 4);
    return {.owner = User(uid),
            .owner_uid = uid,
            .priority = Pick(-1, 1),
            .brings_hosts = Pick(0, 9) == 0,
            .least_nodes = Pick(1, nodes),
            .nodes = nodes,
            .slots_per_node = Pick(1, 4)};
  }

  void Tell(const FleetEvent& fact) {
    facts_.push_back(fact);
    fleet_ = Apply(std::move(fleet_), fact);
  }

  void Place() {
    const Fleet before = fleet_;
    const std::vector<PlaceJob> placed = Decide(fleet_, now_ms_).place;
    for (const PlaceJob& each : placed) {
      CheckPlace(before, each);
      Tell(JobPlaced{each.job, each.shares});
    }
    CheckOrder(before, placed);
    EXPECT_TRUE(Decide(fleet_, now_ms_).place.empty()) << "more could have been placed at once";
  }

  void CheckPlace(const Fleet& before, const PlaceJob& each) {
    const FleetRequest& asked = before.jobs.at(each.job).request;
    EXPECT_EQ(each.shares.empty(), asked.brings_hosts);
    if (asked.brings_hosts) return;
    EXPECT_GE(std::ssize(each.shares), asked.least_nodes);
    EXPECT_LE(std::ssize(each.shares), asked.nodes);
    for (const FleetShare& share : each.shares) {
      const FleetHost& host = before.hosts.at(share.machine);
      EXPECT_TRUE(host.present && !host.drained && !host.leaves) << share.machine;
      EXPECT_LE(host.left_out_until_ms, now_ms_) << share.machine << " is left out";
      const bool allowed = host.owner_uid == asked.owner_uid ||
                           std::count(host.allows.begin(), host.allows.end(), "*") > 0 ||
                           std::count(host.allows.begin(), host.allows.end(), asked.owner) > 0;
      EXPECT_TRUE(allowed) << share.machine << " is of " << host.owner << ", not " << asked.owner;
      EXPECT_GE(std::ssize(share.slots), asked.slots_per_node);
      if (asked.nodes > 1) {
        EXPECT_EQ(std::ssize(share.slots), host.slots);
      }
    }
  }

  // Nobody has got a host that one before it in the queue could use and goes on waiting for.
  void CheckOrder(const Fleet& before, const std::vector<PlaceJob>& placed) {
    for (const PlaceJob& each : placed) {
      const FleetJob& job = before.jobs.at(each.job);
      for (const QueuedJob& waiting : Queue(fleet_, now_ms_)) {
        const FleetJob& other = fleet_.jobs.at(waiting.job);
        const bool is_ahead = std::pair(-other.request.priority, other.place) <
                              std::pair(-job.request.priority, job.place);
        const bool blocks = waiting.reason.rfind("waits for ", 0) == 0;
        for (const FleetShare& share : each.shares) {
          EXPECT_FALSE(is_ahead && blocks && Admits(before.hosts.at(share.machine), other.request))
              << "job " << each.job << " has overtaken " << waiting.job;
        }
      }
    }
  }

  void CheckShares() {
    std::set<std::pair<std::string, int>> taken;
    for (const auto& [number, job] : fleet_.jobs) {
      EXPECT_TRUE(job.phase == FleetPhase::kPlaced || job.shares.empty()) << number;
      for (const FleetShare& share : job.shares) {
        for (const int slot : share.slots) {
          EXPECT_TRUE(taken.insert({share.machine, slot}).second)
              << share.machine << " slot " << slot << " is given twice";
        }
      }
    }
  }

  void CheckReplay() {
    Fleet replayed;
    for (const FleetEvent& fact : facts_) replayed = Apply(std::move(replayed), fact);
    EXPECT_EQ(replayed, fleet_);
  }

  std::mt19937 random_;
  int64_t now_ms_ = 1'700'000'000'000;
  Fleet fleet_;
  std::vector<FleetEvent> facts_;
};

TEST(FleetOverRandomLives, KeepsItsPromises) {
  for (unsigned seed = 1; seed <= kLives; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Life(seed).Run();
    if (testing::Test::HasFailure()) return;
  }
}

}  // namespace
}  // namespace weft
