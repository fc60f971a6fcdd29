// The agent's mind: what it says, and who it ends when.
#include "launcher/agent/host_agent.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <functional>
#include <random>

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum GroupKind;

constexpr int Exited(int code) {  // as wait(2) encodes it
  return code << 8;
}

HostAgent Play(HostAgent agent, const std::vector<HostFact>& facts) {
  for (const HostFact& fact : facts) agent = Apply(std::move(agent), fact);
  return agent;
}

HostAgent Running(GroupKind kind = GroupKind::kForked) {
  return Play({}, {LaunchOrdered{1, 3, kind}, GroupStarted{1}});
}

template <typename Duty>
bool Owes(const HostAgent& agent) {
  const auto duty = Decide(agent);
  return duty && std::holds_alternative<Duty>(*duty);
}

TEST(HostAgent, StartsAGenerationOnceHoweverOftenItIsTold) {
  HostAgent agent = Apply({}, LaunchOrdered{4, 2, kMpirun});
  EXPECT_TRUE(Owes<StartGroup>(agent));
  agent = Apply(agent, GroupStarted{4});
  EXPECT_FALSE(Decide(agent));
  agent = Play(agent, {LaunchOrdered{4, 2, kMpirun}, LaunchOrdered{5, 2, kMpirun}});
  EXPECT_FALSE(Decide(agent)) << "one generation at a time";
  agent = Play(agent, {NothingLeft{4}, LaunchOrdered{4, 2, kMpirun}, LaunchOrdered{3, 2, kMpirun}});
  EXPECT_FALSE(Decide(agent)) << "an old order";
  EXPECT_TRUE(Owes<StartGroup>(Apply(agent, LaunchOrdered{5, 2, kMpirun})));
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
  const std::vector<HostFact> ends = {RankExited{1, 1, Exited(1), ""}, StarterEnds{1},
                                      RankExited{1, 0, SIGKILL, "", true, true},
                                      RankExited{1, 2, SIGTERM, "", false, true},
                                      StarterExited{1, "mpirun", Exited(1), "mpirun has exited"}};
  const HostAgent agent = Play(Running(kMpirun), ends);
  ASSERT_EQ(agent.reports.size(), 1u);
  EXPECT_EQ(std::get<RankEnd>(agent.reports[0].what).rank, 1);
}

TEST(HostAgent, SaysWhatBecameOfMpirunWhereNoRankHasFailed) {
  const HostAgent killed = Apply(Running(kMpirun), StarterExited{1, "mpirun", SIGKILL, ""});
  EXPECT_EQ(std::get<RankEnd>(killed.reports[0].what),
            (RankEnd{1, -1, 0, 0, "mpirun was killed by signal 9 (Killed)", ""}));
  const HostAgent refused =
      Apply(Running(kMpirun), StarterExited{1, "mpirun", Exited(1), "There are not enough slots"});
  EXPECT_THAT(std::get<RankEnd>(refused.reports[0].what).message,
              HasSubstr("ended with code 1: There are not enough slots"));
  const HostAgent missing =
      Play({}, {LaunchOrdered{1, 3, kMpirun}, GroupNotStarted{1, "no mpirun"}});
  EXPECT_TRUE(Owes<KillGroup>(missing));
  EXPECT_EQ(std::get<RankEnd>(missing.reports[0].what).message, "no mpirun");
}

TEST(HostAgent, TellsWhoHadToStopWithTheLease) {
  const int left = 75 << 8;
  HostAgent agent = Apply(Running(), RankExited{1, 0, left, "", false, false, /*lost_lease=*/true});
  ASSERT_EQ(agent.reports.size(), 1u);
  EXPECT_TRUE(std::get<RankEnd>(agent.reports[0].what).lost_lease);
  agent = Apply(Running(), RankExited{1, 0, left, ""});
  EXPECT_FALSE(std::get<RankEnd>(agent.reports[0].what).lost_lease) << "it was told to leave";
}

// USR2 and TERM at the agent are a wish to save: nobody is killed for it.
TEST(HostAgent, PassesAWishToSaveOnAndKillsNobody) {
  const HostAgent agent = Play(Running(), {SaveAsked{}, SaveAsked{}});
  EXPECT_THAT(agent.reports, ElementsAre(HostReport{1, SaveRequest{}}));
  EXPECT_FALSE(Decide(agent));
}

TEST(HostAgent, SaysThatItsHostLeavesThoughItWasAskedToSaveBefore) {
  const HostAgent agent =
      Play(Running(), {SaveAsked{}, SaveAsked{true}, SaveAsked{true}, SaveAsked{}});
  EXPECT_THAT(agent.reports,
              ElementsAre(HostReport{1, SaveRequest{false}}, HostReport{2, SaveRequest{true}}));
  EXPECT_FALSE(Decide(agent)) << "nobody is killed for it";
}

TEST(HostAgent, LeavesOnceNothingIsLeft) {
  HostAgent agent = Apply(Running(), LeaveAsked{});
  EXPECT_TRUE(Owes<KillGroup>(agent));
  agent = Apply(agent, NothingLeft{1});
  EXPECT_TRUE(Owes<Leave>(agent));
  EXPECT_TRUE(Owes<Leave>(Apply(agent, LaunchOrdered{2, 1, kForked}))) << "too late";
}

// On the hosts where mpirun does not run, a generation begins with nothing.
TEST(HostAgent, HoldsAGuestThatHasNotBegunYet) {
  HostAgent agent = Play(Running(kGuest), {NothingLeft{1}, TimePassed{1000000}});
  EXPECT_EQ(agent.phase, GroupPhase::kRunning);
  EXPECT_THAT(agent.reports, IsEmpty());
  EXPECT_FALSE(Decide(agent));
  agent = Play(agent, {DaemonOrdered{1, {"a"}}, NothingLeft{1}});
  EXPECT_TRUE(Owes<StartDaemon>(agent));
  EXPECT_THAT(agent.daemon_args, ElementsAre("a"));
  agent = Apply(agent, DaemonStarted{1});
  EXPECT_FALSE(Decide(agent));
  for (int rank = 0; rank < 3; ++rank) agent = Apply(agent, RankExited{1, rank, Exited(0), ""});
  agent.reports.clear();
  agent = Play(agent, {StarterExited{1, "mpirun's daemon on h2", Exited(0), ""}, NothingLeft{1}});
  EXPECT_THAT(agent.reports, ElementsAre(HostReport{4, GroupEnd{1, true, ""}}));
}

TEST(HostAgent, StartsADaemonOnceAndForTheGenerationThatItHolds) {
  EXPECT_FALSE(Decide(Apply(Running(kGuest), DaemonOrdered{2, {}})));
  EXPECT_FALSE(Decide(Apply(Running(kMpirun), DaemonOrdered{1, {}}))) << "no guest";
  EXPECT_FALSE(Decide(Apply(Running(kForked), DaemonOrdered{1, {}}))) << "no guest";
  const HostAgent started = Play(Running(kGuest), {DaemonOrdered{1, {}}, DaemonStarted{1}});
  EXPECT_FALSE(Decide(Apply(started, DaemonOrdered{1, {}}))) << "an order may repeat";
  const HostAgent stopped = Apply(Running(kGuest), StopOrdered{1, "why", 0});
  EXPECT_TRUE(Owes<TermRanks>(Apply(stopped, DaemonOrdered{1, {}}))) << "too late";
}

// mpirun, which kills them too, announces it first.
TEST(HostAgent, SaysThatARanksShimWasKilled) {
  const HostAgent agent = Apply(Running(kMpirun), RankExited{1, 2, SIGKILL, "", true});
  ASSERT_EQ(agent.reports.size(), 1u);
  EXPECT_FALSE(std::get<RankEnd>(agent.reports[0].what).in_doubt);
  EXPECT_THAT(std::get<RankEnd>(agent.reports[0].what).message, HasSubstr("its shim was killed"));
}

// mpirun and its daemons end their ranks as soon as they miss one another, and which host has
// failed is told by that host, a few milliseconds later.
TEST(HostAgent, WaitsForABetterCauseWhereMpirunEndsRanks) {
  const HostAgent running = Play({}, {LaunchOrdered{1, 3, kGuest, true}, GroupStarted{1},
                                      DaemonOrdered{1, {}}, DaemonStarted{1}, TimePassed{5000}});
  const HostAgent doubts =
      Play(running, {StarterEnds{1}, RankExited{1, 0, SIGTERM, "", false, true},
                     RankExited{1, 1, SIGKILL, "", true, true},
                     StarterExited{1, "mpirun's daemon", Exited(1), ""}, NothingLeft{1}});
  EXPECT_THAT(doubts.reports, IsEmpty());
  EXPECT_EQ(doubts.phase, GroupPhase::kRunning) << "its end would be news too";
  const HostAgent stopped = Play(doubts, {StopOrdered{1, "h1 is lost", 5010}, NothingLeft{1}});
  EXPECT_THAT(stopped.reports,
              ElementsAre(HostReport{1, GroupEnd{1, false, "stopped: h1 is lost"}}));
  const HostAgent told = Play(doubts, {TimePassed{5010}, TimePassed{5010 + kDoubtMs - 1}});
  EXPECT_THAT(told.reports, IsEmpty());
  const HostAgent later = Play(told, {TimePassed{5010 + kDoubtMs}, NothingLeft{1}});
  ASSERT_EQ(later.reports.size(), 2u);
  EXPECT_EQ(std::get<RankEnd>(later.reports[0].what).rank, -1);
  EXPECT_TRUE(std::get<RankEnd>(later.reports[0].what).is_elsewhere);
  EXPECT_TRUE(std::get<RankEnd>(later.reports[0].what).in_doubt) << "who knows more may say better";
  EXPECT_EQ(later.phase, GroupPhase::kNone);
}

// A rank of another host that was killed has closed its connections, which Open MPI writes to.
TEST(HostAgent, BlamesNoRankThatWroteToAPeerThatIsGone) {
  const HostAgent doubts =
      Play({}, {LaunchOrdered{1, 3, kGuest, true}, GroupStarted{1}, DaemonOrdered{1, {}},
                DaemonStarted{1}, RankExited{1, 2, SIGPIPE, "words"}, TimePassed{5000}});
  EXPECT_THAT(doubts.reports, IsEmpty());
  const HostAgent told = Apply(doubts, TimePassed{5000 + kDoubtMs});
  ASSERT_EQ(told.reports.size(), 1u);
  const RankEnd& end = std::get<RankEnd>(told.reports[0].what);
  EXPECT_EQ(end.rank, -1);
  EXPECT_TRUE(end.is_elsewhere);
  EXPECT_THAT(end.message, HasSubstr("rank 2 wrote to a connection"));
  const HostAgent killed = Apply(doubts, RankExited{1, 1, SIGKILL, ""});
  ASSERT_EQ(killed.reports.size(), 1u) << "that one is known";
  EXPECT_EQ(std::get<RankEnd>(killed.reports[0].what).rank, 1);
}

TEST(HostAgent, TellsACertainCauseAtOnceAndInPlaceOfADoubtfulOne) {
  const HostAgent doubts =
      Play({}, {LaunchOrdered{1, 3, kMpirun, true}, GroupStarted{1}, StarterEnds{1}});
  for (const HostFact& cause :
       {HostFact{StarterExited{1, "mpirun", SIGKILL, ""}}, HostFact{RankExited{1, 2, SIGKILL, ""}},
        HostFact{RankExited{1, 2, SIGKILL, "", true}}, HostFact{RankExited{1, 2, Exited(1), ""}}}) {
    const HostAgent agent = Play(doubts, {cause, TimePassed{1}, TimePassed{1 + kDoubtMs}});
    ASSERT_EQ(agent.reports.size(), 1u);
    EXPECT_FALSE(std::get<RankEnd>(agent.reports[0].what).is_elsewhere);
    EXPECT_FALSE(std::get<RankEnd>(agent.reports[0].what).in_doubt);
  }
}

TEST(HostAgent, KeepsAnOrderForADaemonThatComesWithTheLaunch) {
  HostAgent agent = Play({}, {LaunchOrdered{1, 3, kGuest}, DaemonOrdered{1, {"a"}}});
  EXPECT_TRUE(Owes<StartGroup>(agent));
  agent = Apply(agent, GroupStarted{1});
  EXPECT_TRUE(Owes<StartDaemon>(agent));
  EXPECT_THAT(agent.daemon_args, ElementsAre("a"));
}

TEST(HostAgent, EndsAGuestThatNeverBegan) {
  const HostAgent agent =
      Play(Running(kGuest), {StopOrdered{1, "a host is lost", 0}, NothingLeft{1}});
  EXPECT_THAT(agent.reports,
              ElementsAre(HostReport{1, GroupEnd{1, false, "stopped: a host is lost"}}));
  EXPECT_TRUE(Owes<KillGroup>(Apply(Running(kGuest), LeaveAsked{})));
  EXPECT_TRUE(Owes<KillGroup>(Apply(Running(kGuest), LeaseEnded{})));
}

TEST(HostAgent, KeepsWhatItHasNotStartedThoughItsLeaseEnds) {
  const HostAgent ordered = Apply({}, LaunchOrdered{1, 3, kForked});
  EXPECT_TRUE(Owes<StartGroup>(Apply(ordered, LeaseEnded{})));
  EXPECT_TRUE(Owes<KillGroup>(Play(ordered, {GroupStarted{1}, LeaseEnded{}})));
  EXPECT_TRUE(Owes<KillGroup>(Apply(ordered, StopOrdered{1, "", 0}))) << "a new word may end it";
}

TEST(HostAgent, SaysWhatBecameOfMpirunsDaemon) {
  const HostAgent begun = Play(Running(kGuest), {DaemonOrdered{1, {}}, DaemonStarted{1}});
  const HostAgent killed = Apply(begun, StarterExited{1, "mpirun's daemon on h2", SIGKILL, ""});
  EXPECT_EQ(std::get<RankEnd>(killed.reports[0].what),
            (RankEnd{1, -1, 0, 0, "mpirun's daemon on h2 was killed by signal 9 (Killed)", ""}));
  EXPECT_TRUE(Owes<KillGroup>(Apply(killed, StopOrdered{1, "", 0})));
  const HostAgent refused =
      Play(Running(kGuest), {DaemonOrdered{1, {}}, DaemonNotStarted{1, "no orted"}});
  EXPECT_EQ(std::get<RankEnd>(refused.reports[0].what).message, "no orted");
  EXPECT_TRUE(Owes<KillGroup>(refused));
  EXPECT_EQ(Apply(refused, NothingLeft{1}).phase, GroupPhase::kNone);
}

TEST(HostAgent, PassesMpirunsWishForADaemonOnOnce) {
  const DaemonWished wish{1, "h2", {"a", "b"}};
  const HostAgent agent = Play(Running(kMpirun), {wish, wish, DaemonWished{1, "h3", {"c"}}});
  EXPECT_THAT(agent.reports, ElementsAre(HostReport{1, DaemonWish{1, "h2", {"a", "b"}}},
                                         HostReport{2, DaemonWish{1, "h3", {"c"}}}));
  EXPECT_THAT(Apply(Running(kMpirun), DaemonWished{2, "h2", {}}).reports, IsEmpty());
  EXPECT_THAT(Apply(Running(kGuest), wish).reports, IsEmpty());
  EXPECT_THAT(Play(Running(kMpirun), {StopOrdered{1, "", 0}, wish}).reports, IsEmpty());
}

HostFact AnyFact(int64_t generation, int64_t now_ms,
                 const std::function<int(int low, int high)>& number) {
  const int rank = number(0, 2);
  const HostFact facts[] = {
      LaunchOrdered{generation, 3, static_cast<GroupKind>(number(0, 2)), number(0, 1) == 1},
      StopOrdered{generation, "why", now_ms},
      GroupStarted{generation},
      GroupNotStarted{generation, "why"},
      RankExited{generation, rank, Exited(number(0, 1)), ""},
      RankExited{generation, rank, SIGKILL, "", number(0, 1) == 1, number(0, 1) == 1},
      StarterEnds{generation},
      StarterExited{generation, "mpirun", Exited(number(0, 1)), ""},
      DaemonWished{generation, number(0, 1) == 0 ? "h2" : "h3", {}},
      DaemonOrdered{generation, {}},
      DaemonStarted{generation},
      DaemonNotStarted{generation, "why"},
      NothingLeft{generation},
      SaveAsked{},
      TimePassed{now_ms + number(0, 2000)}};
  return facts[number(0, 14)];
}

// Facts in any order: sequences never skip, at most one group's end is said per generation, nothing
// is started while something may run, and only NothingLeft ends a group. A guest waits for its
// daemon, which is started once at most, and never after its stop.
TEST(HostAgentProperty, HoldsOneGenerationAndSaysItsEndOnce) {
  int ends = 0;
  int daemons_of_all = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    const auto number = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    HostAgent agent;
    int64_t ended = 0;
    int64_t sequence = 0;
    int daemons = 0;
    for (int step = 0; step < 100; ++step) {
      const GroupPhase before = agent.phase;
      const int64_t generation = std::max<int64_t>(1, agent.generation + number(-1, 1));
      const bool is_yet_to_come = agent.kind == kGuest && before == GroupPhase::kRunning &&
                                  agent.daemon != DaemonPhase::kStarted;
      const bool was_owed = Owes<StartDaemon>(agent);
      const HostFact fact = AnyFact(generation, step, number);
      agent = Apply(std::move(agent), fact);
      const bool was_free = before == GroupPhase::kNone;
      if (agent.phase == GroupPhase::kOrdered && before != GroupPhase::kOrdered) {
        ASSERT_TRUE(was_free) << "seed " << seed;
        ASSERT_GT(agent.generation, ended) << "seed " << seed;
      }
      if (agent.phase == GroupPhase::kNone && !was_free) {
        ASSERT_TRUE(std::holds_alternative<NothingLeft>(fact)) << "seed " << seed;
        ASSERT_FALSE(is_yet_to_come) << "seed " << seed;
      }
      if (agent.phase == GroupPhase::kOrdered) daemons = 0;
      if (Owes<StartDaemon>(agent) && !was_owed) {
        ASSERT_EQ(++daemons, 1) << "seed " << seed;
        ASSERT_EQ(agent.kind, kGuest) << "seed " << seed;
        ASSERT_TRUE(agent.stop_reason.empty()) << "seed " << seed;
        ++daemons_of_all;
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
  EXPECT_GT(daemons_of_all, 100);
}

}  // namespace
}  // namespace weft
