#include "coordinator/culprit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr auto kTp = MeetingAxis::kTensor;
constexpr auto kDp = MeetingAxis::kReplicas;

// A rank that computes in step 12, has last moved 3 s ago, and shares a group of tp and one of dp
// with all others.
RankSeen Computing(int rank) {
  RankSeen seen;
  seen.rank = rank;
  seen.host = rank < 2 ? "node1" : "node2";
  seen.state = 'S';
  seen.still_ms = seen.idle_ms = 3000;
  seen.page.rank = rank;
  seen.page.phase = RankPhase::kStep;
  seen.page.step = 12;
  seen.page.action_text = "F0";
  for (const MeetingAxis axis : {kTp, kDp}) {
    seen.page.groups[static_cast<size_t>(axis)] = {7, 16};
  }
  return seen;
}

RankSeen In(RankSeen seen, CallKind kind, MeetingAxis axis, int64_t sequence, int peer = -1) {
  seen.page.call = {kind, axis, sequence, peer};
  if (kind != CallKind::kExchange && kind != CallKind::kDevice) {
    seen.page.groups[static_cast<size_t>(axis)].calls = sequence;
  }
  return seen;
}

RankSeen Reducing(int rank, int64_t sequence = 17) {
  return In(Computing(rank), CallKind::kAllReduce, kTp, sequence);
}

RankSeen Exchanging(int rank, int peer) {
  return In(Computing(rank), CallKind::kExchange, kTp, 0, peer);
}

RankSeen WithState(RankSeen seen, char state) {
  seen.state = state;
  return seen;
}

RankSeen InPhase(RankSeen seen, RankPhase phase) {
  seen.page.phase = phase;
  seen.page.action_text.clear();
  return seen;
}

TEST(Culprit, IsWhoeverHasNotEnteredTheCallThatAllOthersAreIn) {
  const Culprit culprit = FindCulprit({Reducing(0), Computing(1), Reducing(2), Reducing(3)});
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.host, "node1");
  EXPECT_EQ(culprit.phase, RankPhase::kStep);
  EXPECT_EQ(culprit.step, 12);
  EXPECT_EQ(culprit.collective, "all-reduce over tp (call 17)");
  EXPECT_EQ(culprit.waiting, "ranks 0, 2 and 3 in all-reduce over tp (call 17)");
  EXPECT_EQ(culprit.evidence, Evidence::kStandsStill);
  EXPECT_EQ(culprit.age_ms, 3000);
}

TEST(Culprit, IsTheEndOfAChainNotTheOneThatTheReporterWaitsFor) {
  const Culprit culprit =
      FindCulprit({Exchanging(0, 1), Exchanging(1, 2), Exchanging(2, 3), Computing(3)});
  EXPECT_EQ(culprit.rank, 3);
  EXPECT_EQ(culprit.collective, "exchange with rank 3");
  EXPECT_THAT(culprit.waiting, HasSubstr("rank 0 in exchange with rank 1"));
}

TEST(Culprit, IsFoundAcrossGroupsOfSeveralAxes) {
  // Rank 0 waits in dp for rank 1, which waits in an exchange for rank 2, which waits in tp for 3.
  const Culprit culprit =
      FindCulprit({In(Computing(0), CallKind::kAwaitStarted, kDp, 17),
                   In(Exchanging(1, 2), CallKind::kExchange, kTp, 0, 2),
                   In(Reducing(2), CallKind::kAllReduce, kTp, 17), Reducing(3, 16)});
  EXPECT_EQ(culprit.rank, 3) << "it is in the call before";
}

TEST(Culprit, IsAStoppedProcessWhereverItIs) {
  for (const RankSeen& stopped :
       {WithState(Computing(1), 'T'), WithState(Reducing(1), 'T'), WithState(Exchanging(1, 0), 't'),
        WithState(InPhase(Computing(1), RankPhase::kStart), 'T'),
        WithState(InPhase(Computing(1), RankPhase::kCommInit), 'T')}) {
    const Culprit culprit = FindCulprit({Reducing(0), stopped, Reducing(2), Reducing(3)});
    EXPECT_EQ(culprit.rank, 1);
    EXPECT_EQ(culprit.evidence, Evidence::kStopped);
    EXPECT_EQ(culprit.phase, stopped.page.phase);
    EXPECT_THAT(culprit.why, HasSubstr("stopped"));
  }
}

TEST(Culprit, OfACallThatAllHaveEnteredIsWhoeverDoesNotPoll) {
  std::vector<RankSeen> ranks = {Reducing(0), Reducing(1), Reducing(2)};
  ranks[2].polls_still_ms = 2500;
  const Culprit culprit = FindCulprit(ranks);
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_EQ(culprit.age_ms, 2500);
  EXPECT_EQ(culprit.collective, "all-reduce over tp (call 17)");
}

TEST(Culprit, HasNoAgeWhileEverybodyPolls) {
  EXPECT_EQ(FindCulprit({Reducing(0), Reducing(1)}).age_ms, 0);
}

TEST(Culprit, IsWhoeverHasDepartedFromItsSchedule) {
  // Rank 1 has skipped a call over dp; now both wait for each other.
  RankSeen skipped = In(Computing(1), CallKind::kAllReduce, kTp, 17);
  skipped.page.departure = {12, kDp, 3, 2};
  const RankSeen other = In(Computing(0), CallKind::kAllReduce, kDp, 17);
  const Culprit culprit = FindCulprit({other, skipped});
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.evidence, Evidence::kDeparted);
  EXPECT_EQ(culprit.collective, "a collective over replicas of dp that it skipped");
  EXPECT_EQ(culprit.why,
            "in step 12 it has made 2 of 3 calls over replicas of dp that its schedule has by "
            "then");
}

TEST(Culprit, IsNobodyWhereRanksWaitForEachOther) {
  const Culprit culprit = FindCulprit({Exchanging(0, 1), Exchanging(1, 0)});
  EXPECT_EQ(culprit.rank, -1);
  EXPECT_THAT(culprit.why, HasSubstr("wait for each other"));
  EXPECT_THAT(culprit.waiting, HasSubstr("rank 0 in exchange with rank 1"));
}

TEST(Culprit, IsNobodyWhereAllWaitForTheCoordinator) {
  std::vector<RankSeen> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(
        In(InPhase(Computing(rank), RankPhase::kLoad), CallKind::kMeeting, MeetingAxis::kBegin, 1));
  }
  EXPECT_EQ(FindCulprit(ranks).rank, -1);
}

TEST(Culprit, OfALoadIsTheRankThatIsNotReady) {
  std::vector<RankSeen> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(InPhase(Computing(rank), RankPhase::kLoad));
    if (rank != 1)
      ranks[static_cast<size_t>(rank)] =
          In(ranks.back(), CallKind::kMeeting, MeetingAxis::kBegin, 1);
  }
  const Culprit culprit = FindCulprit(ranks);
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.phase, RankPhase::kLoad);
  EXPECT_EQ(culprit.collective, "wait for the beginning of training");
}

TEST(Culprit, OfALoadHasNoAgeWhileItReads) {
  RankSeen reads = InPhase(Computing(1), RankPhase::kLoad);
  reads.still_ms = 60000;
  reads.idle_ms = 200;
  const Culprit culprit = FindCulprit(
      {In(InPhase(Computing(0), RankPhase::kLoad), CallKind::kMeeting, MeetingAxis::kBegin, 1),
       reads});
  EXPECT_EQ(culprit.rank, 1);
  EXPECT_EQ(culprit.age_ms, 200);
}

TEST(Culprit, InUninterruptibleSleepComesBeforeOneThatStandsStill) {
  std::vector<RankSeen> ranks = {Reducing(0), Computing(1),
                                 WithState(InPhase(Computing(2), RankPhase::kSave), 'D')};
  ranks[1].still_ms = 9000;
  ranks[2].sleeps_in = "percpu_rwsem_wait";
  const Culprit culprit = FindCulprit(ranks);
  EXPECT_EQ(culprit.rank, 2);
  EXPECT_EQ(culprit.evidence, Evidence::kUninterruptible);
  EXPECT_THAT(culprit.why, HasSubstr("percpu_rwsem_wait"));
}

TEST(Culprit, OfADeviceThatAllWaitForIsTheRankWhoseCallsTrail) {
  std::vector<RankSeen> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(In(Computing(rank), CallKind::kDevice, MeetingAxis::kWorld, 0));
    ranks.back().page.groups[static_cast<size_t>(kTp)].calls = 20;
  }
  EXPECT_EQ(FindCulprit(ranks).rank, -1) << "the device does not say whom it waits for";
  ranks[1] = Computing(1);
  EXPECT_EQ(FindCulprit(ranks).rank, 1);
}

TEST(Culprit, OfAnExchangeBesideOthersIgnoresWhoComputesForNobody) {
  // Rank 3 is as still, but nobody waits for it.
  const Culprit culprit = FindCulprit({Exchanging(0, 1), Computing(1), Computing(3)});
  EXPECT_EQ(culprit.rank, 1);
}

TEST(Culprit, OfARankAloneIsThatRank) {
  EXPECT_EQ(FindCulprit({Computing(0)}).rank, 0);
}

TEST(Culprit, IsNotARankThatHasEnded) {
  EXPECT_EQ(FindCulprit({Reducing(0), WithState(Computing(1), '-')}).rank, -1);
}

TEST(Culprit, NamesManyRanksShortly) {
  EXPECT_EQ(RanksText({3}), "rank 3");
  EXPECT_EQ(RanksText({0, 2, 3}), "ranks 0, 2 and 3");
  EXPECT_EQ(RanksText({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 2 more");
}

}  // namespace
}  // namespace weft
