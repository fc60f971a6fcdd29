// The fleet's rules, one by one: who gets which hosts, who waits for what, and what is left out.
#include "coordinator/fleet/fleet.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kNow = 1'700'000'000'000;
constexpr int64_t kHour = 3600 * 1000;

HostJoined Host(const std::string& machine, int slots, int64_t uid = 1,
                std::vector<std::string> allows = {}) {
  return {machine, "host-" + machine, uid == 1 ? "ann" : "bob", uid, std::move(allows), slots};
}
FleetRequest Nodes(int least, int nodes, int slots, int64_t uid = 1, int priority = 0) {
  return {.owner = uid == 1 ? "ann" : "bob",
          .owner_uid = uid,
          .priority = priority,
          .least_nodes = least,
          .nodes = nodes,
          .slots_per_node = slots};
}

// A fleet to tell facts to; Place does what Decide says.
class Told {
 public:
  Told& Say(const FleetEvent& fact) {
    fleet_ = Apply(std::move(fleet_), fact);
    return *this;
  }
  int64_t Submit(const FleetRequest& request) {
    Say(JobQueued{fleet_.newest_job + 1, request});
    return fleet_.newest_job;
  }
  Told& Place(int64_t now_ms = kNow) {
    for (const PlaceJob& each : Decide(fleet_, now_ms).place) Say(JobPlaced{each.job, each.shares});
    return *this;
  }
  // "m1:0,1 m2:0,1"; empty: it holds nothing.
  std::string Holds(int64_t job) const {
    std::string text;
    for (const FleetShare& share : fleet_.jobs.at(job).shares) {
      text += (text.empty() ? "" : " ") + share.machine + ":";
      for (size_t i = 0; i < share.slots.size(); ++i) {
        text += (i == 0 ? "" : ",") + std::to_string(share.slots[i]);
      }
    }
    return text;
  }
  std::string Waits(int64_t job, int64_t now_ms = kNow) const {
    for (const QueuedJob& each : Queue(fleet_, now_ms)) {
      if (each.job == job) return each.reason;
    }
    return "";
  }
  FleetPhase phase(int64_t job) const { return fleet_.jobs.at(job).phase; }
  const Fleet& fleet() const { return fleet_; }

 private:
  Fleet fleet_;
};

TEST(Fleet, GivesWholeHostsToAJobOfSeveral) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 4)).Say(Host("m3", 2));
  const int64_t job = fleet.Submit(Nodes(2, 2, 2));
  EXPECT_EQ(fleet.Place().Holds(job), "m1:0,1 m2:0,1,2,3");
}

TEST(Fleet, GivesAnElasticJobAsManyHostsAsAreFree) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2)).Say(Host("m3", 2));
  const int64_t wide = fleet.Submit(Nodes(2, 5, 2));
  EXPECT_EQ(fleet.Place().Holds(wide), "m1:0,1 m2:0,1 m3:0,1");
}

TEST(Fleet, SharesOneHostAmongJobsOfOneNode) {
  Told fleet;
  fleet.Say(Host("m1", 4)).Say(Host("m2", 2));
  const int64_t first = fleet.Submit(Nodes(1, 1, 1));
  const int64_t second = fleet.Submit(Nodes(1, 1, 3));
  const int64_t third = fleet.Submit(Nodes(1, 1, 1));
  const int64_t fourth = fleet.Submit(Nodes(1, 1, 1));
  fleet.Place();
  EXPECT_EQ(fleet.Holds(first), "m2:0");
  EXPECT_EQ(fleet.Holds(second), "m1:0,1,2");
  EXPECT_EQ(fleet.Holds(third), "m1:3");
  EXPECT_EQ(fleet.Holds(fourth), "m2:1");
}

TEST(Fleet, PlacesByPriorityThenByArrivalAndEvictsNobody) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t runs = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place();
  const int64_t low = fleet.Submit(Nodes(1, 1, 2));
  const int64_t high = fleet.Submit(Nodes(1, 1, 2, 1, 5));
  const int64_t also_high = fleet.Submit(Nodes(1, 1, 2, 1, 5));
  EXPECT_EQ(fleet.Place().phase(runs), FleetPhase::kPlaced);
  const auto next = [&](int64_t ends) {
    return fleet.Say(JobEnded{ends, "COMPLETED", "", kNow}).Place();
  };
  EXPECT_EQ(next(runs).Holds(high), "m1:0,1");
  EXPECT_EQ(next(high).Holds(also_high), "m1:0,1");
  EXPECT_EQ(next(also_high).Holds(low), "m1:0,1");
}

TEST(Fleet, LetsNobodyOvertakeAJobThatWaitsForTheSameHosts) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2));
  fleet.Submit(Nodes(1, 1, 2));
  fleet.Place();
  const int64_t wide = fleet.Submit(Nodes(2, 2, 2));
  const int64_t narrow = fleet.Submit(Nodes(1, 1, 1));
  fleet.Place();
  EXPECT_EQ(fleet.Waits(wide), "waits for 2 whole hosts of 2 slots");
  EXPECT_EQ(fleet.Waits(narrow), "waits for 1 host with 1 slot free");
}

TEST(Fleet, IsNotBlockedByAJobThatCanNeverFit) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t never = fleet.Submit(Nodes(9, 9, 2));
  const int64_t small = fleet.Submit(Nodes(1, 1, 2));
  EXPECT_EQ(fleet.Place().Holds(small), "m1:0,1");
  EXPECT_EQ(fleet.phase(never), FleetPhase::kQueued);
  EXPECT_THAT(fleet.Waits(never), HasSubstr("needs 9 whole hosts of 2 slots, which the hosts"));
}

TEST(Fleet, UsesOnlyHostsOfTheSubmitterOrThoseThatAllowIt) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t bobs = fleet.Submit(Nodes(1, 1, 2, 2));
  EXPECT_EQ(fleet.Place().Holds(bobs), "");
  fleet.Say(Host("m1", 2, 1, {"bob"}));
  EXPECT_EQ(fleet.Place().Holds(bobs), "m1:0,1");
}

TEST(Fleet, ASubmitterWhoseHostsAreBusyKeepsNobodyFromOtherHosts) {
  Told fleet;
  fleet.Say(Host("m1", 2, 1)).Say(Host("m2", 2, 2));
  fleet.Submit(Nodes(1, 1, 2, 1));
  fleet.Submit(Nodes(1, 1, 2, 1));
  const int64_t bobs = fleet.Submit(Nodes(1, 1, 2, 2));
  EXPECT_EQ(fleet.Place().Holds(bobs), "m2:0,1");
}

TEST(Fleet, LeavesOutForAnHourAHostThatFailedThreeTimes) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  fleet.Say(HostFailed{"m1", kNow}).Say(HostFailed{"m1", kNow + 1});
  EXPECT_TRUE(IsUsable(fleet.fleet().hosts.at("m1"), kNow + 2));
  fleet.Say(HostFailed{"m1", kNow + 2});
  const int64_t job = fleet.Submit(Nodes(1, 1, 1));
  EXPECT_EQ(fleet.Place(kNow + 3).Holds(job), "");
  EXPECT_EQ(fleet.Place(kNow + 1 + kHour).Holds(job), "");
  EXPECT_EQ(fleet.Place(kNow + 2 + kHour).Holds(job), "m1:0");
}

TEST(Fleet, ForgivesFailuresThatAreAnHourApart) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(HostFailed{"m1", kNow}).Say(HostFailed{"m1", kNow + 5});
  fleet.Say(HostFailed{"m1", kNow + 5 + kHour});
  EXPECT_TRUE(IsUsable(fleet.fleet().hosts.at("m1"), kNow + 6 + kHour));
}

TEST(Fleet, RemembersTheFailuresOfAHostThatGoesAndComes) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(HostFailed{"m1", kNow}).Say(HostFailed{"m1", kNow});
  fleet.Say(HostGone{"m1", kNow}).Say(Host("m1", 2)).Say(HostFailed{"m1", kNow});
  EXPECT_FALSE(IsUsable(fleet.fleet().hosts.at("m1"), kNow + 1));
}

TEST(Fleet, PlacesNothingOnADrainedHostAndLeavesWhatRunsThere) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t runs = fleet.Submit(Nodes(1, 1, 1));
  fleet.Place().Say(HostDrained{"m1", "disk"});
  const int64_t waits = fleet.Submit(Nodes(1, 1, 1));
  EXPECT_EQ(fleet.Place().Holds(runs), "m1:0");
  EXPECT_EQ(fleet.Holds(waits), "");
  EXPECT_EQ(fleet.Say(HostUndrained{"m1"}).Place().Holds(waits), "m1:1");
}

TEST(Fleet, DrainingIsRememberedWhileTheHostIsAway) {
  Told fleet;
  fleet.Say(Host("m1", 2))
      .Say(HostDrained{"m1", "disk"})
      .Say(HostGone{"m1", kNow})
      .Say(Host("m1", 2));
  EXPECT_FALSE(IsUsable(fleet.fleet().hosts.at("m1"), kNow));
}

TEST(Fleet, PlacesAJobThatBringsItsHostsAtOnce) {
  Told fleet;
  FleetRequest request = Nodes(4, 4, 8);
  request.brings_hosts = true;
  const int64_t job = fleet.Submit(request);
  EXPECT_EQ(fleet.Place().phase(job), FleetPhase::kPlaced);
  EXPECT_EQ(fleet.Holds(job), "");
}

TEST(Fleet, APausedJobGivesItsHostsBackAndComesLastWhenResumed) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t paused = fleet.Submit(Nodes(1, 1, 2));
  const int64_t next = fleet.Place().Submit(Nodes(1, 1, 2));
  fleet.Say(PauseAsked{paused});
  ASSERT_EQ(Decide(fleet.fleet(), kNow).end.size(), 1u);
  fleet.Say(JobEnded{paused, "SUSPENDED", "", kNow}).Place();
  EXPECT_EQ(fleet.phase(paused), FleetPhase::kPaused);
  EXPECT_EQ(fleet.Holds(next), "m1:0,1");
  fleet.Say(ResumeAsked{paused}).Place();
  EXPECT_EQ(fleet.phase(paused), FleetPhase::kQueued);
  fleet.Say(JobEnded{next, "COMPLETED", "", kNow}).Place();
  EXPECT_EQ(fleet.Holds(paused), "m1:0,1");
  EXPECT_EQ(fleet.fleet().jobs.at(paused).allocation, 3);
}

TEST(Fleet, AJobThatEndsWhileItIsToBePausedIsOver) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place().Say(PauseAsked{job}).Say(JobEnded{job, "COMPLETED", "", kNow});
  EXPECT_EQ(fleet.phase(job), FleetPhase::kOver);
}

JobUnwanted Unwanted(int64_t job, bool now = false, int64_t save_until_ms = 0) {
  return {job, now, save_until_ms, "stopped", kNow};
}
// "save 1", "end 2": what the Drivers of placed jobs are to be asked.
std::vector<std::string> Ends(const Fleet& fleet, int64_t now_ms = kNow) {
  std::vector<std::string> ends;
  for (const EndJob& each : Decide(fleet, now_ms).end) {
    ends.push_back((each.now ? "end " : "save ") + std::to_string(each.job));
  }
  return ends;
}

TEST(Fleet, AResizedJobSavesAndGoesOnWithItsNewSize) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2));
  const int64_t job = fleet.Submit(Nodes(2, 2, 2));
  fleet.Place().Say(ResizeAsked{job, 1, 1});
  ASSERT_EQ(Decide(fleet.fleet(), kNow).end.size(), 1u);
  EXPECT_EQ(fleet.Say(JobEnded{job, "SUSPENDED", "", kNow}).Place().Holds(job), "m1:0,1");
}

TEST(Fleet, AJobGrowsOnceTheHostsAreThereAndIsSavedForIt) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  const int64_t other = fleet.Place().Submit(Nodes(1, 1, 2));
  fleet.Place().Say(ResizeAsked{job, 2, 2});
  const int64_t later = fleet.Submit(Nodes(1, 1, 2));
  EXPECT_THAT(Ends(fleet.fleet(), kNow + 10 * kAwaitGoneMs), testing::IsEmpty())
      << "it goes on, and has lost nothing";
  EXPECT_TRUE(Decide(fleet.fleet(), kNow + 10 * kAwaitGoneMs).move.empty());
  fleet.Say(JobEnded{other, "COMPLETED", "", kNow}).Place();
  EXPECT_EQ(fleet.phase(later), FleetPhase::kQueued) << "the host is kept for the one before it";
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("save 1"));
  fleet.Say(JobEnded{job, "SUSPENDED", "", kNow}).Place();
  EXPECT_EQ(fleet.Holds(job), "m1:0,1 m2:0,1");
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty());
}

TEST(Fleet, AnElasticResizeTakesWhatIsThereAndAsksForNothingThatItHas) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2));
  const int64_t job = fleet.Submit(Nodes(2, 2, 2));
  fleet.Place().Say(ResizeAsked{job, 1, 3});
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty()) << "there is no third host yet";
  fleet.Say(Host("m3", 2));
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("save 1"));
  fleet.Say(ResizeAsked{job, 2, 2});
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty()) << "so it is placed";
  fleet.Say(ResizeAsked{job, 1, 1});
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("save 1"));
}

TEST(Fleet, AJobThatNobodyHasStoppedIsQueuedAgainWhereItWas) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  const int64_t other = fleet.Place().Submit(Nodes(1, 1, 2));
  fleet.Say(JobMoves{job}).Say(JobEnded{job, "SUSPENDED", "host m1 leaves", kNow});
  EXPECT_EQ(fleet.phase(job), FleetPhase::kQueued);
  fleet.Place();
  EXPECT_EQ(fleet.Holds(job), "m1:0,1") << "before those that came later";
  EXPECT_EQ(fleet.phase(other), FleetPhase::kQueued);
}

// weftd 84931f28 ended such jobs when an agent got TERM; an upgrade reads that again.
TEST(Fleet, AJobThatAnOlderVersionHasEndedStaysOver) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place().Say(JobEnded{job, "SUSPENDED", "stopped on request", kNow});
  EXPECT_EQ(fleet.phase(job), FleetPhase::kOver);
}

TEST(Fleet, AHostThatLeavesGetsNothingAndGivesItsJobsToOthers) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2)).Say(Host("m3", 2));
  const int64_t elastic = fleet.Submit(Nodes(1, 2, 2));
  const int64_t fixed = fleet.Place().Submit(Nodes(1, 1, 2));
  fleet.Place();
  HostJoined leaves = Host("m3", 2);
  leaves.leaves = true;
  fleet.Say(leaves);
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("save 2"));
  fleet.Say(JobMoves{fixed}).Say(JobEnded{fixed, "SUSPENDED", "", kNow}).Place();
  EXPECT_EQ(fleet.phase(fixed), FleetPhase::kQueued) << "it waits for another host";
  leaves = Host("m2", 2);
  leaves.leaves = true;
  fleet.Say(leaves);
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty()) << "enough are left to job " << elastic;
  fleet.Say(Host("m3", 2)).Place();
  EXPECT_EQ(fleet.Holds(fixed), "m3:0,1") << "it is back";
}

TEST(Fleet, ADrainThatMovesAsksJobsAway) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place().Say(HostDrained{"m1", "disk"});
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty()) << "what runs there goes on";
  fleet.Say(HostDrained{"m1", "disk", /*moves=*/true});
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("save 1"));
  fleet.Say(JobMoves{job}).Say(JobEnded{job, "SUSPENDED", "", kNow});
  EXPECT_EQ(fleet.Place().Holds(job), "m2:0,1");
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty());
}

TEST(Fleet, AJobThatAPersonHasStoppedIsResumedLast) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place().Say(Unwanted(job)).Say(JobEnded{job, "SUSPENDED", "stopped", kNow});
  ASSERT_EQ(fleet.phase(job), FleetPhase::kOver);
  fleet.Say(ResumeAsked{job});
  EXPECT_EQ(fleet.Place().Holds(job), "m1:0,1");
  EXPECT_THAT(Ends(fleet.fleet()), testing::IsEmpty()) << "the wish to stop is over";
  EXPECT_TRUE(fleet.fleet().over.empty());
  fleet.Say(JobEnded{job, "COMPLETED", "", kNow}).Say(ResumeAsked{job});
  EXPECT_EQ(fleet.phase(job), FleetPhase::kOver) << "there is nothing to go on with";
}

TEST(Fleet, AJobOfTheNetworkGoesToHostsOfItsOwnersName) {
  Told fleet;
  fleet.Say(Host("m1", 2, /*uid=*/2)).Say(Host("m2", 2));
  FleetRequest request = Nodes(1, 1, 2);
  request.owner_uid = -1;
  const int64_t job = fleet.Submit(request);
  EXPECT_EQ(fleet.Place().Holds(job), "m2:0,1");
}

TEST(Fleet, AnUnwantedJobThatIsNotPlacedIsOverAtOnce) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t runs = fleet.Submit(Nodes(1, 1, 2));
  const int64_t waits = fleet.Place().Submit(Nodes(1, 1, 2));
  fleet.Say(Unwanted(runs)).Say(Unwanted(waits));
  EXPECT_EQ(fleet.phase(runs), FleetPhase::kPlaced);
  EXPECT_EQ(fleet.fleet().jobs.at(waits).end, "CANCELLED");
}

TEST(Fleet, AnUnwantedJobSavesUntilItsTimeIsOver) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place().Say(Unwanted(job, false, kNow + 5000));
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("save 1"));
  EXPECT_THAT(Ends(fleet.fleet(), kNow + 5000), testing::ElementsAre("end 1"));
  fleet.Say(Unwanted(job, true));
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("end 1"));
  fleet.Say(Unwanted(job));
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("end 1")) << "the wish has fallen";
}

TEST(Fleet, AnUnwantedJobIsOverThoughItWasToBePaused) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t job = fleet.Submit(Nodes(1, 1, 2));
  fleet.Place().Say(PauseAsked{job}).Say(Unwanted(job)).Say(PauseAsked{job});
  fleet.Say(JobEnded{job, "SUSPENDED", "", kNow});
  EXPECT_EQ(fleet.phase(job), FleetPhase::kOver);
}

TEST(Fleet, AJobMovesOnceTooFewOfItsHostsAreLeftForAWhile) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2)).Say(Host("m3", 2));
  const int64_t job = fleet.Submit(Nodes(2, 2, 2));
  const int64_t other = fleet.Place().Submit(Nodes(3, 3, 2));
  fleet.Say(HostGone{"m1", kNow});
  EXPECT_TRUE(Decide(fleet.fleet(), kNow + kAwaitGoneMs - 1).move.empty()) << "it may come back";
  EXPECT_EQ(AwaitsGoneUntilMs(fleet.fleet(), fleet.fleet().jobs.at(job), kNow + 1000),
            kNow + kAwaitGoneMs);
  ASSERT_EQ(Decide(fleet.fleet(), kNow + kAwaitGoneMs).move.size(), 1u);
  fleet.Say(JobMoves{job});
  EXPECT_TRUE(Decide(fleet.fleet(), kNow + kAwaitGoneMs).move.empty());
  EXPECT_THAT(Ends(fleet.fleet()), testing::ElementsAre("end 1"));
  fleet.Say(JobEnded{job, "CANCELLED", "", kNow}).Place();
  EXPECT_EQ(fleet.Holds(job), "m2:0,1 m3:0,1");
  EXPECT_EQ(fleet.phase(other), FleetPhase::kQueued);
}

TEST(Fleet, AJobStaysWhileEnoughOfItsHostsAreLeft) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(Host("m2", 2));
  fleet.Submit(Nodes(1, 2, 2));
  fleet.Place().Say(HostGone{"m1", kNow});
  EXPECT_TRUE(Decide(fleet.fleet(), kNow + 10 * kAwaitGoneMs).move.empty());
  EXPECT_EQ(AwaitsGoneUntilMs(fleet.fleet(), fleet.fleet().jobs.at(1), kNow + 1), 0);
}

TEST(Fleet, ARepeatedFactChangesNothing) {
  Told fleet;
  fleet.Say(Host("m1", 2)).Say(HostDrained{"m1", "disk"});
  fleet.Submit(Nodes(1, 1, 2));
  const Fleet before = fleet.fleet();
  fleet.Say(Host("m1", 2)).Say(HostDrained{"m1", "disk"}).Say(JobQueued{1, Nodes(1, 1, 2)});
  EXPECT_EQ(fleet.fleet(), before);
}

TEST(Fleet, ForgetsJobsThatWereOverLongAgo) {
  Told fleet;
  fleet.Say(Host("m1", 2));
  const int64_t old = fleet.Submit(Nodes(1, 1, 2));
  const int64_t recent = fleet.Submit(Nodes(1, 1, 2));
  fleet.Say(Unwanted(old)).Say(JobUnwanted{recent, false, 0, "", kNow + kMaxOverAgeMs});
  EXPECT_EQ(fleet.fleet().jobs.count(old), 0u);
  EXPECT_EQ(fleet.fleet().jobs.count(recent), 1u);
}

TEST(RanksUid, IsTheSubmittersWhereRootsAgentKnowsWhoThatIs) {
  FleetHost roots;
  roots.owner_uid = 0;
  roots.starts_as_submitter = true;
  FleetHost older = roots, others = roots;
  older.starts_as_submitter = false;
  others.owner_uid = 991;
  const FleetRequest by_socket{.owner = "ann", .owner_uid = 1000};
  const FleetRequest over_network{.owner = "ann", .owner_uid = -1};
  const FleetRequest by_root{.owner = "root", .owner_uid = 0};
  EXPECT_EQ(RanksUid(roots, by_socket), 1000);
  EXPECT_EQ(RanksUid(roots, over_network), 0);
  EXPECT_EQ(RanksUid(roots, by_root), 0);
  EXPECT_EQ(RanksUid(older, by_socket), 0) << "it would not know what it is told";
  EXPECT_EQ(RanksUid(others, by_socket), 991) << "only root becomes somebody else";
}

}  // namespace
}  // namespace weft
