// The agent's mind: what it says, and who it ends when.
#include "launcher/agent/host_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <random>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int Exited(int code) {  // as wait(2) encodes it
  return code << 8;
}

HostAgent Play(HostAgent agent, const std::vector<HostFact>& facts) {
  for (const HostFact& fact : facts) agent = Apply(std::move(agent), fact);
  return agent;
}

HostAgent Running(bool has_starter = false) {
  return Play({}, {LaunchOrdered{1, 3, has_starter}, GroupStarted{1}});
}

template <typename Duty>
bool Owes(const HostAgent& agent) {
  const auto duty = Decide(agent);
  return duty && std::holds_alternative<Duty>(*duty);
}

TEST(HostAgent, StartsAGenerationOnceHoweverOftenItIsTold) {
  HostAgent agent = Apply({}, LaunchOrdered{4, 2, true});
  EXPECT_TRUE(Owes<StartGroup>(agent));
  agent = Apply(agent, GroupStarted{4});
  EXPECT_FALSE(Decide(agent));
  agent = Play(agent, {LaunchOrdered{4, 2, true}, LaunchOrdered{5, 2, true}});
  EXPECT_FALSE(Decide(agent)) << "one generation at a time";
  agent = Play(agent, {NothingLeft{4}, LaunchOrdered{4, 2, true}, LaunchOrdered{3, 2, true}});
  EXPECT_FALSE(Decide(agent)) << "an old order";
  EXPECT_TRUE(Owes<StartGroup>(Apply(agent, LaunchOrdered{5, 2, true})));
}

TEST(HostAgent, SaysThatAGroupIsGoneOnlyOnceNothingIsLeft) {
  HostAgent agent = Running();
  for (int rank = 0; rank < 3; ++rank) agent = Apply(agent, RankExited{1, rank, Exited(0), ""});
  EXPECT_EQ(agent.reports.size(), 3u);
  EXPECT_EQ(agent.phase, GroupPhase::kRunning);
  agent.reports.clear();
  agent = Apply(agent, NothingLeft{1});
  EXPECT_THAT(agent.reports, ElementsAre(HostReport{4, GroupEnd{1, true, ""}}));
  EXPECT_EQ(agent.phase, GroupPhase::kNone);
  EXPECT_THAT(Apply(agent, NothingLeft{1}).reports.size(), 1u) << "once";
}

TEST(HostAgent, TellsEachEndAsItsParentKnowsIt) {
  const HostAgent agent =
      Play(Running(), {RankExited{1, 2, SIGSEGV, "last words"}, RankExited{1, 0, Exited(75), ""}});
  EXPECT_THAT(agent.reports,
              ElementsAre(HostReport{1, RankEnd{1, 2, SIGSEGV, 0, "", "last words"}},
                          HostReport{2, RankEnd{1, 0, 0, 75, "it lost its coordinator", ""}}));
  EXPECT_FALSE(Decide(agent)) << "an agent never decides";
}

TEST(HostAgent, GivesRanksASecondAndThenKillsThem) {
  HostAgent agent = Apply(Running(), StopOrdered{1, "a stop was requested", 5000});
  EXPECT_TRUE(Owes<TermRanks>(agent));
  agent = Apply(agent, TimePassed{5000 + kStopPatienceMs - 1});
  EXPECT_TRUE(Owes<TermRanks>(agent));
  agent = Apply(agent, TimePassed{5000 + kStopPatienceMs});
  EXPECT_TRUE(Owes<KillGroup>(agent));
  agent = Apply(agent, RankExited{1, 0, SIGKILL, ""});
  EXPECT_THAT(agent.reports, IsEmpty()) << "whom we kill is no cause of anything";
  agent = Apply(agent, NothingLeft{1});
  const auto& end = std::get<GroupEnd>(agent.reports.back().what);
  EXPECT_FALSE(end.clean);
  EXPECT_EQ(end.message, "stopped: a stop was requested");
}

TEST(HostAgent, WaitsForNobodyInAGroupThatCannotGoOn) {
  const HostAgent failed = Apply(Running(), RankExited{1, 1, SIGKILL, ""});
  EXPECT_TRUE(Owes<KillGroup>(Apply(failed, StopOrdered{1, "rank 1", 0})));
  const HostAgent stopping = Apply(Running(), StopOrdered{1, "stop", 0});
  EXPECT_TRUE(Owes<KillGroup>(Apply(stopping, RankExited{1, 1, SIGKILL, ""})));
}

TEST(HostAgent, BlamesNobodyWhomMpirunKilledAfterAnotherHadFailed) {
  const std::vector<HostFact> ends = {RankExited{1, 1, Exited(1), ""},
                                      RankExited{1, 0, SIGKILL, ""},
                                      StarterExited{1, Exited(1), "mpirun has exited"}};
  const HostAgent agent = Play(Running(/*has_starter=*/true), ends);
  ASSERT_EQ(agent.reports.size(), 1u);
  EXPECT_EQ(std::get<RankEnd>(agent.reports[0].what).rank, 1);
  EXPECT_EQ(Play(Running(/*has_starter=*/false), ends).reports.size(), 2u);
}

TEST(HostAgent, SaysWhatBecameOfMpirunWhereNoRankHasFailed) {
  const HostAgent killed = Apply(Running(true), StarterExited{1, SIGKILL, ""});
  EXPECT_EQ(std::get<RankEnd>(killed.reports[0].what),
            (RankEnd{1, -1, 0, 0, "mpirun was killed by signal 9 (Killed)", ""}));
  const HostAgent refused =
      Apply(Running(true), StarterExited{1, Exited(1), "There are not enough slots"});
  EXPECT_THAT(std::get<RankEnd>(refused.reports[0].what).message,
              HasSubstr("ended with code 1: There are not enough slots"));
  const HostAgent missing = Play({}, {LaunchOrdered{1, 3, true}, GroupNotStarted{1, "no mpirun"}});
  EXPECT_TRUE(Owes<KillGroup>(missing));
  EXPECT_EQ(std::get<RankEnd>(missing.reports[0].what).message, "no mpirun");
}

// USR2 and TERM at the agent are a wish to save: nobody is killed for it.
TEST(HostAgent, PassesAWishToSaveOnAndKillsNobody) {
  const HostAgent agent = Play(Running(), {SaveAsked{}, SaveAsked{}});
  EXPECT_THAT(agent.reports, ElementsAre(HostReport{1, SaveRequest{}}));
  EXPECT_FALSE(Decide(agent));
}

TEST(HostAgent, LeavesOnceNothingIsLeft) {
  HostAgent agent = Apply(Running(), LeaveAsked{});
  EXPECT_TRUE(Owes<KillGroup>(agent));
  agent = Apply(agent, NothingLeft{1});
  EXPECT_TRUE(Owes<Leave>(agent));
  EXPECT_TRUE(Owes<Leave>(Apply(agent, LaunchOrdered{2, 1, false}))) << "too late";
}

// Facts in any order: sequences never skip, at most one group's end is said per generation, nothing
// is started while something may run, and only NothingLeft ends a group.
TEST(HostAgentProperty, HoldsOneGenerationAndSaysItsEndOnce) {
  int ends = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto number = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    HostAgent agent;
    int64_t ended = 0;
    int64_t sequence = 0;
    for (int step = 0; step < 60; ++step) {
      const GroupPhase before = agent.phase;
      const int64_t generation = std::max<int64_t>(1, agent.generation + number(-1, 1));
      const int rank = number(0, 2);
      const HostFact facts[] = {LaunchOrdered{generation, 3, number(0, 1) == 1},
                                StopOrdered{generation, "why", step},
                                GroupStarted{generation},
                                GroupNotStarted{generation, "why"},
                                RankExited{generation, rank, Exited(number(0, 1)), ""},
                                RankExited{generation, rank, SIGKILL, ""},
                                StarterExited{generation, Exited(number(0, 1)), ""},
                                NothingLeft{generation},
                                SaveAsked{},
                                TimePassed{step + number(0, 2000)}};
      const HostFact& fact = facts[number(0, 9)];
      agent = Apply(std::move(agent), fact);
      const bool was_free = before == GroupPhase::kNone;
      if (agent.phase == GroupPhase::kOrdered && before != GroupPhase::kOrdered) {
        ASSERT_TRUE(was_free) << "seed " << seed;
        ASSERT_GT(agent.generation, ended) << "seed " << seed;
      }
      if (agent.phase == GroupPhase::kNone && !was_free) {
        ASSERT_TRUE(std::holds_alternative<NothingLeft>(fact)) << "seed " << seed;
      }
      for (const HostReport& report : agent.reports) {
        ASSERT_EQ(report.sequence, ++sequence) << "seed " << seed;
        if (const auto* end = std::get_if<GroupEnd>(&report.what)) {
          ASSERT_GT(end->generation, ended) << "seed " << seed;
          ended = end->generation;
          ++ends;
        }
      }
      agent.reports.clear();
    }
  }
  EXPECT_GT(ends, 2000);
}

}  // namespace
}  // namespace weft
