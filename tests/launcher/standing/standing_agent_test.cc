#include "launcher/standing/standing_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

AllocationOrder Order(int64_t allocation, const std::string& run = "run-a") {
  return {"job-1", allocation, run, "/runs/a", 4, {0, 1}};
}

StandingAgent After(const std::vector<StandingFact>& facts) {
  StandingAgent agent;
  for (const StandingFact& fact : facts) agent = Apply(std::move(agent), fact);
  return agent;
}

const AllocationEnd kClean{0, 0, "bye"};

TEST(StandingAgent, StartsWhatItIsGivenOnce) {
  EXPECT_THAT(Decide(After({AllocationGiven{Order(7)}})),
              ElementsAre(StandingDuty{StandingDutyKind::kStart, 7}));
  const StandingAgent started =
      After({AllocationGiven{Order(7)}, AllocationStarted{7}, AllocationGiven{Order(7)}});
  EXPECT_THAT(Decide(started), IsEmpty());
  EXPECT_THAT(RunningOf(started), ElementsAre(Order(7)));
}

TEST(StandingAgent, StartsTheSecondAgentOfARunOnceNothingOfTheFirstIsLeft) {
  std::vector<StandingFact> facts = {AllocationGiven{Order(7)}, AllocationStarted{7},
                                     AllocationGiven{Order(8)}};
  EXPECT_THAT(Decide(After(facts)), IsEmpty());
  facts.emplace_back(AllocationExited{7, kClean});
  EXPECT_THAT(Decide(After(facts)), ElementsAre(StandingDuty{StandingDutyKind::kSweep, 7}));
  facts.emplace_back(AllocationSwept{7});
  EXPECT_THAT(Decide(After(facts)), ElementsAre(StandingDuty{StandingDutyKind::kStart, 8}));
}

TEST(StandingAgent, RunsAgentsOfOtherRunsSideBySide) {
  EXPECT_THAT(Decide(After({AllocationGiven{Order(7)}, AllocationStarted{7},
                            AllocationGiven{Order(8, "run-b")}})),
              ElementsAre(StandingDuty{StandingDutyKind::kStart, 8}));
}

TEST(StandingAgent, TellsAnAgentToEndAndKillsItAfterTenSeconds) {
  std::vector<StandingFact> facts = {AllocationGiven{Order(7)}, AllocationStarted{7},
                                     AllocationTaken{"job-1", 7, "preempted"}};
  EXPECT_THAT(Decide(After(facts)), ElementsAre(StandingDuty{StandingDutyKind::kTell, 7}));
  facts.emplace_back(AllocationTold{7, 1000});
  facts.emplace_back(StandingTimePassed{10999});
  EXPECT_THAT(Decide(After(facts)), IsEmpty());
  facts.emplace_back(AllocationTaken{"job-1", 7, "preempted"});
  facts.emplace_back(StandingTimePassed{11000});
  EXPECT_THAT(Decide(After(facts)), ElementsAre(StandingDuty{StandingDutyKind::kKill, 7}));
}

TEST(StandingAgent, ReportsAnEndOnceAndForgetsItWhenItIsAcknowledged) {
  StandingAgent agent =
      After({AllocationGiven{Order(7)}, AllocationStarted{7}, AllocationExited{7, {0, 9, "oops"}},
             AllocationSwept{7}, AllocationSwept{7}, AllocationTaken{"job-1", 7, "late"}});
  EXPECT_THAT(agent.reports, ElementsAre(EndReport{1, "job-1", 7, {0, 9, "oops"}}));
  EXPECT_THAT(RunningOf(agent), IsEmpty());
  agent = Apply(agent, AllocationGiven{Order(7)});
  EXPECT_THAT(Decide(agent), IsEmpty()) << "weftd has not heard yet that it ended";
  agent = Apply(agent, EndsAcknowledged{0});
  EXPECT_THAT(agent.allocations, SizeIs(1));
  agent = Apply(agent, EndsAcknowledged{1});
  EXPECT_THAT(agent.allocations, IsEmpty());
}

TEST(StandingAgent, AnswersForWhatNeverRan) {
  const StandingAgent agent =
      After({AllocationTaken{"job-3", 5, "why"}, AllocationGiven{Order(7)},
             AllocationTaken{"job-1", 7, "preempted"}, AllocationGiven{Order(8)},
             AllocationNotStarted{8, "cannot execute weft: not found"}});
  ASSERT_THAT(agent.reports, SizeIs(3));
  EXPECT_EQ(agent.reports[0], (EndReport{1, "job-3", 5, {0, 0, "it does not run here"}}));
  EXPECT_EQ(agent.reports[1], (EndReport{2, "job-1", 7, {0, 0, "it was not started: preempted"}}));
  EXPECT_EQ(agent.reports[2],
            (EndReport{3, "job-1", 8, {127, 0, "cannot execute weft: not found"}}));
}

TEST(StandingAgent, TakesOverWhatTheOneBeforeItHasStarted) {
  const StandingAgent agent = After({AllocationFound{Order(7)}, AllocationFound{Order(6), kClean}});
  EXPECT_THAT(RunningOf(agent), ElementsAre(Order(7)));
  EXPECT_THAT(agent.reports, ElementsAre(EndReport{1, "job-1", 6, kClean}));
  EXPECT_THAT(Decide(agent), IsEmpty());
}

TEST(StandingAgent, LeavesOnceNothingRunsAnyMore) {
  StandingAgent agent =
      After({AllocationGiven{Order(7)}, AllocationStarted{7}, AllocationGiven{Order(8)},
             StandingEndAsked{}, AllocationGiven{Order(9, "run-b")}});
  EXPECT_FALSE(MayLeave(agent));
  EXPECT_THAT(Decide(agent), ElementsAre(StandingDuty{StandingDutyKind::kTell, 7}));
  EXPECT_THAT(agent.reports, SizeIs(2)) << "of the one that waited and of the one that came late";
  agent = Apply(Apply(agent, AllocationExited{7, kClean}), AllocationSwept{7});
  EXPECT_TRUE(MayLeave(agent));
}

TEST(StandingAgent, ThatLeavesWaitsForASaveUntilWeftdWantsTheAgentGone) {
  StandingAgent agent = After({AllocationGiven{Order(7)}, AllocationStarted{7}, StandingEndAsked{},
                               AllocationTold{7, 1000}, StandingTimePassed{1000 + 60000}});
  EXPECT_THAT(Decide(agent), IsEmpty()) << "a save may take that long";
  agent = Apply(agent, AllocationTaken{"job-1", 7, "the job has no part of it"});
  EXPECT_THAT(Decide(agent), ElementsAre(StandingDuty{StandingDutyKind::kTell, 7}));
  agent =
      Apply(Apply(agent, AllocationTold{7, 70000}), StandingTimePassed{70000 + kAgentPatienceMs});
  EXPECT_THAT(Decide(agent), ElementsAre(StandingDuty{StandingDutyKind::kKill, 7}));
}

TEST(StandingAgent, RefusesAnOrderThatMakesNoSenseByName) {
  struct Case {
    AllocationOrder order;
    std::string names;
  };
  const std::vector<Case> cases = {
      {{"job-1", 7, "../x", "/runs/a", 4, {}}, "run_id ../x"},
      {{"", 7, "run-a", "/runs/a", 4, {}}, "job_id "},
      {{"job-1", 0, "run-a", "/runs/a", 4, {}}, "allocation 0"},
      {{"job-1", 7, "run-a", "runs", 4, {}}, "run_folder runs"},
      {{"job-1", 7, "run-a", "/runs/a", 0, {}}, "host_slots 0"},
      {{"job-1", 7, "run-a", "/runs/a", 4, {0, 4}}, "slot 4"},
  };
  for (const Case& each : cases) {
    const StandingAgent agent = After({AllocationGiven{each.order}});
    EXPECT_THAT(Decide(agent), IsEmpty()) << each.names;
    ASSERT_THAT(agent.reports, SizeIs(1)) << each.names;
    EXPECT_EQ(agent.reports[0].end.exit_code, 127) << each.names;
    EXPECT_THAT(agent.reports[0].end.last_words, HasSubstr(each.names));
  }
}

TEST(StandingAgent, HoldsABoundedNumberOfAgents) {
  StandingAgent agent;
  const auto most = static_cast<int64_t>(kMostAllocations);
  for (int64_t number = 1; number <= most; ++number) {
    agent.allocations[number] = {.order = Order(number)};
  }
  agent = Apply(std::move(agent), AllocationGiven{Order(most + 1)});
  EXPECT_THAT(agent.allocations, SizeIs(kMostAllocations));
  EXPECT_THAT(agent.reports, SizeIs(1));
}

TEST(RedialMs, GrowsToABoundAndSpreads) {
  EXPECT_EQ(RedialMs(1, 0), kFirstRedialMs / 2);
  EXPECT_EQ(RedialMs(2, 0), kFirstRedialMs);
  EXPECT_LT(RedialMs(3, 0.1), RedialMs(3, 0.9));
  EXPECT_LE(RedialMs(1000000, 0.999), kLastRedialMs);
  EXPECT_GE(RedialMs(1000000, 0), kLastRedialMs / 2);
}

}  // namespace
}  // namespace weft
