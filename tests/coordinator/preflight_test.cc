#include "coordinator/preflight.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "coordinator/check_round.h"
#include "coordinator/hosts.h"
#include "coordinator/job.h"
#include "coordinator/preflight_messages.h"
#include "tests/coordinator/job_script.h"

namespace weft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::UnorderedElementsAre;

HostChecked Passed(int host, int64_t round = 1) {
  return {.round = round,
          .machine = absl::StrCat("m", host),
          .host = absl::StrCat("h", host),
          .agent_pid = host,
          .product_flops_per_s = 100e9};
}
HostChecked Bad(int host, int64_t round = 1) {
  HostChecked fact = Passed(host, round);
  fact.findings = {{"data", Severity::kBroken, "a.bin differs", "it is 1:ab", "copy it"}};
  return fact;
}
Submitted Submission(const std::string& request, const JobSpec& spec) {
  Submitted submitted;
  submitted.request_id = request;
  submitted.spec = spec;
  submitted.run_folder = "/run";
  return submitted;
}
// Nothing of generation 1 is left there.
AttemptEnded Ended(const std::string& machine) {
  AttemptEnded ended;
  ended.generation = 1;
  ended.machine = machine;
  return ended;
}
CheckRound::Part OnlyPairs() {
  CheckRound::Part part;
  part.pairs_only = true;
  return part;
}
HostOffered Offer(int host) {
  return {.machine = absl::StrCat("m", host), .host = absl::StrCat("h", host), .agent_pid = host};
}

// A job that asks for so many hosts, planned, with that many there.
class PreflightTest : public testing::Test {
 protected:
  void Begin(int nodes, int least, int spares = 0) {
    JobSpec spec = SmallJob();
    spec.fault_tolerance.preflight = true;
    spec.cluster.nodes = nodes;
    spec.cluster.slots_per_node = 1;
    spec.hosts.least_nodes = least;
    spec.hosts.spares = spares;
    Say(Submission("r1", spec));
    Layout layout;
    layout.dp = nodes;
    Say(Planned{.layout = layout, .shape = {.nodes = nodes}});
    for (int host = 1; host <= nodes + spares; ++host) Say(Offer(host));
  }
  void Say(const Event& fact) { job_ = Apply(std::move(job_), fact); }
  std::vector<std::string> Hosts() const {
    std::vector<std::string> hosts;
    const auto shares = SharesOf(job_);
    if (!shares.ok()) return {std::string(shares.status().message())};
    for (const HostShare& share : shares->shares) hosts.push_back(share.host);
    return hosts;
  }

  Job job_;
};

TEST_F(PreflightTest, NobodyIsPlacedBeforeAllWhoAreThereAreChecked) {
  Begin(2, 0, /*spares=*/1);
  EXPECT_THAT(HostsToCheck(job_), ElementsAre("m1", "m2", "m3"));
  Say(Passed(1));
  Say(Passed(2));
  EXPECT_THAT(HostsToCheck(job_), ElementsAre("m3"));
  EXPECT_EQ(ShapeToPlanFor(job_), std::nullopt);
  EXPECT_THAT(Hosts(), ElementsAre("hosts are being checked"));
  Say(Passed(3));
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
  EXPECT_EQ(ShapeToPlanFor(job_)->nodes, 2);
}

TEST_F(PreflightTest, ABadHostIsLeftOutAndNamedWhereTheRestIsEnough) {
  Begin(3, 2);
  Say(Bad(2));
  Say(Passed(1));
  Say(Passed(3));
  EXPECT_EQ(ShapeToPlanFor(job_)->nodes, 2) << "nobody else is waited for: all have come";
  Layout layout;
  layout.dp = 2;
  Say(Planned{.layout = layout, .shape = {.nodes = 2}});
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h3"));
  Say(Launched{1, SharesOf(job_)->shares});
  EXPECT_THAT(job_.reason,
              HasSubstr("host h2 is left out: data: a.bin differs, but it is 1:ab; copy it"));
}

TEST_F(PreflightTest, TheJobFailsWithAllReasonsAtOnceWhereItIsNot) {
  Begin(3, 3);
  Say(Bad(2));
  EXPECT_EQ(job_.phase, Phase::kPlanned) << "the others are not heard yet";
  Say(Bad(3));
  Say(Passed(1));
  EXPECT_EQ(job_.phase, Phase::kFailed);
  EXPECT_EQ(job_.reason,
            "1 of at least 3 hosts passed their check\n"
            "host h2: data: a.bin differs, but it is 1:ab; copy it\n"
            "host h3: data: a.bin differs, but it is 1:ab; copy it");
  EXPECT_THAT(Decide(job_), IsEmpty());
}

TEST_F(PreflightTest, AJobThatHasRunWaitsForBetterOnes) {
  Begin(2, 2);
  Say(Passed(1));
  Say(Passed(2));
  Say(Launched{1, SharesOf(job_)->shares});
  Say(HostLost{1, "m2", "silent"});
  Say(Ended("m1"));
  HostOffered again = Offer(2);
  again.agent_pid = 22;
  Say(again);
  EXPECT_THAT(HostsToCheck(job_), ElementsAre("m2")) << "it was lost: the old check is void";
  HostChecked bad = Bad(2, 2);
  bad.agent_pid = 22;
  Say(bad);
  EXPECT_EQ(job_.phase, Phase::kRecovering);
  EXPECT_THAT(job_.reason, HasSubstr("waiting for hosts: 1 of at least 2 hosts passed"));
  again.agent_pid = 23;  // mended
  Say(again);
  HostChecked good = Passed(2, 3);
  good.agent_pid = 23;
  Say(good);
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
}

TEST_F(PreflightTest, AMendedHostIsTakenWhenTheSameAgentIsCheckedAgain) {
  Begin(2, 1);
  Say(Passed(1));
  Say(Bad(2));
  EXPECT_THAT(HostsToCheck(job_), IsEmpty());
  EXPECT_THAT(HostsToCheckAgain(job_), ElementsAre("m2"));
  EXPECT_THAT(Hosts(), ElementsAre(HasSubstr("1 of 2 hosts")));
  Say(Bad(2, 2));
  EXPECT_THAT(HostsToCheckAgain(job_), ElementsAre("m2")) << "it stays bad";
  Say(Passed(2, 3));
  EXPECT_THAT(HostsToCheckAgain(job_), IsEmpty());
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
}

TEST_F(PreflightTest, AJobThatWaitsGoesOnWithAMendedHost) {
  Begin(2, 2);
  Say(Passed(1));
  Say(Passed(2));
  Say(Launched{1, SharesOf(job_)->shares});
  Say(HostLost{1, "m2", "silent"});
  Say(Ended("m1"));
  Say(Offer(2));
  Say(Bad(2, 2));
  EXPECT_THAT(job_.reason, HasSubstr("waiting for hosts: 1 of at least 2 hosts passed"));
  EXPECT_THAT(HostsToCheckAgain(job_), ElementsAre("m2"));
  Say(Passed(2, 3));
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
}

TEST_F(PreflightTest, AHostWhoseRanksRunIsNotCheckedAgain) {
  Begin(2, 0);
  Say(Passed(1));
  Say(Passed(2));
  Say(Launched{1, SharesOf(job_)->shares});
  Say(Bad(2, 2));
  EXPECT_THAT(HostsToCheckAgain(job_), IsEmpty());
}

TEST_F(PreflightTest, NobodyIsCheckedAgainOnceTheJobIsOver) {
  Begin(1, 0);
  Say(Bad(1));
  EXPECT_EQ(job_.phase, Phase::kFailed);
  EXPECT_THAT(HostsToCheckAgain(job_), IsEmpty());
}

TEST_F(PreflightTest, ACheckOutlivesAStreamAndACoordinatorButNotItsAgent) {
  Begin(2, 0);
  Say(Passed(1));
  Say(Passed(2));
  Say(HostAway{"m1"});
  EXPECT_THAT(HostsToCheck(job_), IsEmpty());
  Say(Offer(1));
  EXPECT_THAT(HostsToCheck(job_), IsEmpty());
  Say(Restarted{});
  Say(Offer(1));
  Say(Offer(2));
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
  HostOffered other = Offer(1);
  other.agent_pid = 11;
  Say(other);
  EXPECT_THAT(HostsToCheck(job_), ElementsAre("m1"));
}

TEST_F(PreflightTest, ANewSubmissionChecksAnew) {
  Begin(1, 0);
  Say(Passed(1));
  Say(Submission("r2", job_.spec));
  Say(Planned{.layout = Layout(), .shape = {.nodes = 1}});
  EXPECT_THAT(HostsToCheck(job_), ElementsAre("m1"));
}

TEST_F(PreflightTest, WithoutItEveryHostIsFit) {
  Begin(2, 0);
  job_.spec.fault_tolerance.preflight = false;
  EXPECT_THAT(HostsToCheck(job_), IsEmpty());
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
}

TEST_F(PreflightTest, AHostThatComputesFarSlowerThanTheOthersIsLeftOut) {
  struct Case {
    double rate;
    const char* fate;
  };
  for (const Case& each :
       {Case{100e9, "fit"}, Case{81e9, "fit"}, Case{79e9, "slow"}, Case{48e9, "slow"},
        Case{41e9, "slow"}, Case{39e9, "unfit"}, Case{0, "fit"}}) {
    SCOPED_TRACE(each.rate);
    job_ = Job();
    Begin(3, 2);
    Say(Passed(1));
    Say(Passed(2));
    HostChecked third = Passed(3);
    third.product_flops_per_s = each.rate;
    Say(third);
    const Fitness fitness = FitnessOf(job_);
    const std::string fate = fitness.unfit.count("m3") > 0  ? "unfit"
                             : fitness.slow.count("m3") > 0 ? "slow"
                                                            : "fit";
    EXPECT_EQ(fate, each.fate);
    EXPECT_EQ(fitness.fit.size(), fate == "unfit" ? 2 : 3);
  }
}

TEST_F(PreflightTest, OneFastHostMakesTheOthersNotSlow) {
  Begin(4, 2);
  for (int host = 1; host <= 4; ++host) {
    HostChecked fact = Passed(host);
    if (host == 1) fact.product_flops_per_s = 900e9;
    Say(fact);
  }
  EXPECT_EQ(FitnessOf(job_).fit.size(), 4);
}

TEST_F(PreflightTest, OfTwoThatDoNotReachEachOtherTheLastIsLeftOut) {
  Begin(3, 2);
  Say(Passed(1));
  HostChecked second = Passed(2);
  second.unreached = {{"m3", "h3", "10.0.0.3: no route"}};
  Say(second);
  HostChecked third = Passed(3);
  third.unreached = {{"m2", "h2", "10.0.0.2: no answer"}};
  Say(third);
  const Fitness fitness = FitnessOf(job_);
  EXPECT_THAT(fitness.fit, ElementsAre("m1", "m2"));
  ASSERT_THAT(fitness.unfit, ElementsAre(Key("m3")));
  EXPECT_THAT(fitness.unfit.at("m3").front().found,
              HasSubstr("h2 does not reach h3 (10.0.0.3: no route)"));
  EXPECT_THAT(fitness.unfit.at("m3").front().found,
              HasSubstr("h3 does not reach h2 (10.0.0.2: no answer)"));
}

// h1 is behind a firewall: all pairs with it fail, one way.
TEST_F(PreflightTest, TheHostWithMostFailedPairsIsLeftOut) {
  Begin(4, 2);
  Say(Passed(1));
  for (int host = 2; host <= 4; ++host) {
    HostChecked fact = Passed(host);
    fact.unreached = {{"m1", "h1", "refused"}};
    Say(fact);
  }
  EXPECT_THAT(FitnessOf(job_).fit, ElementsAre("m2", "m3", "m4"));
}

TEST_F(PreflightTest, WhatAHostSaysOfOneThatWasCheckedAnewNoLongerCounts) {
  Begin(2, 2);
  HostChecked first = Passed(1);
  first.unreached = {{"m2", "h2", "no answer"}};
  Say(first);
  HostOffered again = Offer(2);
  again.agent_pid = 22;
  Say(again);
  HostChecked second = Passed(2, 2);
  second.agent_pid = 22;
  Say(second);
  EXPECT_THAT(FitnessOf(job_).fit, ElementsAre("m1", "m2"));
  HostChecked pairs{.round = 2,
                    .machine = "m1",
                    .host = "h1",
                    .agent_pid = 1,
                    .pairs_only = true,
                    .unreached = {{"m2", "h2", "no answer"}}};
  Say(pairs);
  EXPECT_THAT(FitnessOf(job_).fit, ElementsAre("m1")) << "but what it says now does";
}

TEST_F(PreflightTest, AHostThatDoesNotAnswerIsWaitedForAndTakenWhenItDoes) {
  Begin(2, 2);
  Say(Passed(1));
  CheckRound round;
  round.Begin(1, 0, {{"m2", {.host = "h2"}}});
  Say(NotAnswered(job_, round, "m2"));
  EXPECT_EQ(job_.phase, Phase::kPlanned);
  EXPECT_THAT(job_.reason, HasSubstr("host h2: answer: its check did not end within 8 s"));
  Say(Passed(2));
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2"));
  Say(Bad(2));
  EXPECT_THAT(Hosts(), ElementsAre("h1", "h2")) << "a round is answered once";
}

TEST_F(PreflightTest, ASpareTakesTheLostHostsPlaceInTheSameLayout) {
  Begin(2, 0, /*spares=*/1);
  for (int host = 1; host <= 3; ++host) Say(Passed(host));
  Say(Launched{1, SharesOf(job_)->shares});
  const std::optional<Layout> layout = job_.layout;
  Say(HostLost{1, "m1", "silent"});
  Say(Ended("m2"));
  EXPECT_EQ(ShapeToPlanFor(job_)->nodes, 2) << "at once: nobody is waited for";
  EXPECT_THAT(Hosts(), ElementsAre("h2", "h3"));
  EXPECT_EQ(job_.layout, layout);
}

TEST_F(PreflightTest, WatchersAreToldWhoIsTooSlowOnceAllAreChecked) {
  Begin(3, 2);
  Say(Passed(1));
  HostChecked slow = Passed(2);
  slow.product_flops_per_s = 10e9;
  Say(slow);
  EXPECT_EQ(CheckedEvents(slow, job_).size(), 1u);
  Say(Passed(3));
  const auto events = CheckedEvents(Passed(3), job_);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].host(), "h2");
  EXPECT_EQ(events[1].results(0).name(), "product");
  EXPECT_EQ(events[1].results(0).found(), "10.0 GFLOP/s, 0.10 of the others");
}

// ---- the round ----

std::vector<std::string> Machines(const std::vector<CheckRound::Turn>& turns) {
  std::vector<std::string> machines;
  for (const CheckRound::Turn& turn : turns) machines.push_back(turn.machine);
  return machines;
}

TEST(CheckRound, TellsAllOnceAllHaveOpened) {
  CheckRound round;
  round.Begin(7, 1000, {{"a", {}}, {"b", {}}, {"c", {}}});
  round.Opened("a", "10.0.0.1", 1);
  round.Opened("b", "10.0.0.2", 2);
  EXPECT_THAT(round.ToTell(1100), IsEmpty());
  round.Opened("c", "10.0.0.3", 3);
  const auto turns = round.ToTell(1100);
  EXPECT_THAT(Machines(turns), ElementsAre("a", "b", "c"));
  EXPECT_THAT(turns[0].peers, ElementsAre("b", "c"));
  EXPECT_EQ(turns[0].dialled_by, 2);
  EXPECT_THAT(round.ToTell(1100), IsEmpty()) << "each once";
  for (const char* machine : {"a", "b", "c"}) round.Done(machine);
  EXPECT_TRUE(round.IsOver());
}

TEST(CheckRound, DoesNotWaitForeverForADoor) {
  CheckRound round;
  round.Begin(7, 1000, {{"a", {}}, {"b", {}}, {"c", {}}});
  round.Opened("a", "10.0.0.1", 1);
  round.Opened("b", "", 0);  // it has no address
  EXPECT_THAT(round.ToTell(1000 + CheckRound::kOpenMs - 1), IsEmpty());
  const auto turns = round.ToTell(1000 + CheckRound::kOpenMs);
  EXPECT_THAT(Machines(turns), ElementsAre("a", "b"));
  EXPECT_THAT(turns[0].peers, IsEmpty());
  EXPECT_THAT(turns[1].peers, ElementsAre("a"));
  round.Done("a");
  round.Done("b");
  EXPECT_THAT(round.Silent(1000 + CheckRound::kAnswerMs), ElementsAre("c"));
}

TEST(CheckRound, ThoseWhoWereCheckedBeforeMeetTheNewOnesAlone) {
  CheckRound round;
  round.Begin(7, 0, {{"a", OnlyPairs()}, {"b", OnlyPairs()}, {"c", {}}});
  for (const char* machine : {"a", "b", "c"}) round.Opened(machine, "10.0.0.1", 1);
  const auto turns = round.ToTell(1);
  EXPECT_THAT(turns[0].peers, ElementsAre("c"));
  EXPECT_THAT(turns[1].peers, ElementsAre("c"));
  EXPECT_THAT(turns[2].peers, UnorderedElementsAre("a", "b"));
}

std::string NameOf(int host) {
  return absl::StrCat(100000 + host);
}

// Who dials whom in a round of so many hosts.
std::map<std::string, std::vector<std::string>> DialsOf(int hosts) {
  CheckRound round;
  std::map<std::string, CheckRound::Part> parts;
  for (int i = 0; i < hosts; ++i) parts[NameOf(i)];
  round.Begin(7, 0, parts);
  for (const auto& [machine, part] : parts) round.Opened(machine, "10.0.0.1", 1);
  std::map<std::string, std::vector<std::string>> dials;
  for (const CheckRound::Turn& turn : round.ToTell(1)) {
    EXPECT_EQ(turn.dialled_by, std::ssize(turn.peers)) << turn.machine;
    dials[turn.machine] = turn.peers;
  }
  return dials;
}

TEST(CheckRound, OfFewEachDialsAll) {
  for (const auto& [machine, peers] : DialsOf(65)) EXPECT_EQ(peers.size(), 64u);
}

TEST(CheckRound, OfManyEachDialsSomeNearAndFar) {
  EXPECT_THAT(DialsOf(66).at(NameOf(60)), ElementsAre(NameOf(61), NameOf(62), NameOf(64), NameOf(2),
                                                      NameOf(10), NameOf(26), NameOf(58)));
  for (const auto& [machine, peers] : DialsOf(12500)) ASSERT_EQ(peers.size(), 14u);
}

// Wherever a network of many hosts is cut in two, some on each side have dialled across.
TEST(CheckRound, OfManySomeDialAcrossAnyCut) {
  constexpr int kHosts = 1000;
  const auto dials = DialsOf(kHosts);
  for (int begin = 0; begin < kHosts; begin += 37) {
    for (int length = 1; length <= kHosts / 2; ++length) {
      const auto is_in = [&](const std::string& machine) {
        const int host = std::stoi(machine) - 100000;
        return (host - begin + kHosts) % kHosts < length;
      };
      bool out = false;
      for (const std::string& peer : dials.at(NameOf((begin + length - 1) % kHosts))) {
        out = out || !is_in(peer);
      }
      ASSERT_TRUE(out) << begin << " " << length;
    }
  }
}

// Its witnesses are log2(n); nobody else is left out for it.
TEST(CheckRound, OfManyADeadAddressIsFoundAndNobodyElse) {
  constexpr int kHosts = 1000;
  Job job;
  job.spec.cluster.nodes = kHosts;
  for (int i = 0; i < kHosts; ++i) {
    job.offers[NameOf(i)] = {.host = NameOf(i), .agent_pid = 1};
    job.checks[NameOf(i)] = {.round = 7, .agent_pid = 1, .pairs_round = 7};
  }
  for (const auto& [machine, peers] : DialsOf(kHosts)) {
    for (const std::string& peer : peers) {
      if (peer == NameOf(617) || machine == NameOf(617)) {
        job.checks[machine].unreached.push_back({peer, peer, "timed out"});
      }
    }
  }
  const Fitness fitness = FitnessOf(job);
  EXPECT_EQ(fitness.unfit.size(), 1u);
  EXPECT_EQ(fitness.unfit.count(NameOf(617)), 1u);
}

}  // namespace
}  // namespace weft
