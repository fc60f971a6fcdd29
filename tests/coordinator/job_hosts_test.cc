// A job on several hosts, as a state machine: for how many of them it is planned, and when it
// grows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "coordinator/hosts.h"
#include "coordinator/liveness.h"
#include "tests/coordinator/job_script.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kJobLeaseMs = 8000;
constexpr int64_t kDefaultSteadyMs = 60000;  // fault_tolerance.steady_seconds, its default

Job After(Job job, const std::vector<std::string>& facts) {
  for (const std::string& fact : facts) job = Apply(std::move(job), ParseFact(fact));
  return job;
}

// Asks for three hosts and trains on two of them.
Job TrainingOnTwo() {
  return After(Job(), {"submit3 r1", "plan3", "offer m1", "offer m2", "awaited 1", "plan2",
                       "launch2 1", "register 1/0", "register 1/1", "ready 1/0", "ready 1/1"});
}

// Returns the facts that time alone makes `after_ms` after the last host came, all being heard.
std::vector<Event> ExpiredAfter(int64_t after_ms, const Job& job) {
  Clocks clocks;
  clocks.heard_ms = {{0, after_ms}, {1, after_ms}};
  clocks.looked_ms = after_ms;
  clocks.lease_end_ms = {{"m1", int64_t{1} << 40}, {"m2", int64_t{1} << 40}};
  return Expired(job, clocks, after_ms, kJobLeaseMs);
}

TEST(LargestShape, HasTheMostSlotsOfThoseThatWereNotRefused) {
  Job job = After(Job(), {"submit3 r1", "plan3", "offer m1", "offer m2", "offer m3"});
  EXPECT_EQ(LargestShape(job), (ClusterShape{3, 1}));
  job = After(std::move(job), {"refuse3"});
  EXPECT_EQ(LargestShape(job), (ClusterShape{2, 1}));
  job = After(std::move(job), {"refuse2"});
  EXPECT_EQ(LargestShape(job), std::nullopt) << "below its least";
  EXPECT_THAT(job.reason, HasSubstr("there is no plan for 2 of 3: nothing fits"));
}

TEST(Job, GoesOnWithFewerHostsWhereThereIsNoPlanForAllThatAreThere) {
  Job job = After(Job(), {"submit3 r1", "plan2", "offer m1", "offer m2", "offer m3"});
  EXPECT_EQ(JobText(job), "PLANNED g1 open | plan") << "for three";
  job = After(std::move(job), {"refuse3"});
  EXPECT_EQ(JobText(job), "PLANNED g1 open | launch g1") << "on two, the third is a spare";
}

TEST(Job, DoesNotGrowToACountThatHasNoPlan) {
  Job job = After(TrainingOnTwo(), {"offer m3"});
  ASSERT_EQ(ExpiredAfter(kDefaultSteadyMs + 1, job).size(), 1u);
  job = After(std::move(job), {"refuse3"});
  EXPECT_EQ(JobText(job), "RUNNING g1 training | begin g1") << "what trains is not disturbed";
  EXPECT_TRUE(ExpiredAfter(kDefaultSteadyMs + 1, job).empty());
  EXPECT_TRUE(ExpiredAfter(10 * kDefaultSteadyMs, job).empty());
}

TEST(Job, IsNotStoppedForAHostThatHasGoneAgain) {
  for (const char* gone : {"away m3", "silent 1 on m3"}) {
    Job job = After(TrainingOnTwo(), {"offer m3", "more 1", gone});
    job = After(std::move(job), {"shard 1/0 10", "shard 1/1 10", "committed 1/0 10"});
    EXPECT_EQ(job.phase, Phase::kRunning) << gone;
    job = After(std::move(job), {"offer m3", "more 1"});
    job = After(std::move(job), {"shard 1/0 11", "shard 1/1 11", "committed 1/0 11"});
    EXPECT_EQ(job.phase, Phase::kRecovering) << "it is back, and has stayed";
  }
}

TEST(Job, SavesAndGoesOnWithTheOthersWhenAHostLeaves) {
  Job job = After(TrainingOnTwo(), {"offer m3", "leaves m2"});
  EXPECT_EQ(JobText(job), "DRAINING g1 training | begin g1, stop_training g1");
  EXPECT_EQ(job.reason, "host m2 leaves: saving");
  const Job again = Apply(job, ParseFact("leaves m2"));
  EXPECT_EQ(again, job) << "it is known";
  job = After(std::move(job),
              {"shard 1/0 7", "shard 1/1 7", "committed 1/0 7", "stopped 1/0 7", "stopped 1/1 7"});
  EXPECT_EQ(JobText(job), "RECOVERING g1 stopping") << "ranks leave by themselves";
  EXPECT_EQ(job.reason, "host m2 leaves; resuming after step 7");
  job = After(std::move(job), {"ended 1 clean on m1", "ended 1 clean on m2"});
  EXPECT_EQ(job.generation.phase, GenerationPhase::kOpen);
  EXPECT_EQ(job.newest().step, 7);
  EXPECT_EQ(job.offers.count("m2"), 0u);
  EXPECT_EQ(job.restarts_left, SmallJob().fault_tolerance.max_restarts) << "nothing has failed";
}

TEST(Job, EndsItsGenerationAtOnceWhenAHostLeavesBeforeItTrains) {
  Job job = After(Job(), {"submit3 r1", "plan3", "offer m1", "offer m2", "offer m3", "launch3 1",
                          "register3 1/0", "leaves m3"});
  EXPECT_EQ(JobText(job), "RECOVERING g1 stopping | abort g1, stop_group g1");
  EXPECT_FALSE(job.last_failure);
}

TEST(Job, IsSuspendedOnceTooFewHostsAreLeft) {
  Job job = After(TrainingOnTwo(), {"leaves m2", "stopped 1/0 7", "stopped 1/1 7",
                                    "ended 1 clean on m1", "ended 1 clean on m2"});
  EXPECT_EQ(JobText(job), "SUSPENDED g1 closed");
  EXPECT_THAT(job.reason, HasSubstr("host m2 leaves, 1 of at least 2 hosts are left"));
  EXPECT_TRUE(IsLeftByItsHosts(job)) << "no person has asked for it";
}

// m3 has left in good order; m2, which is lost later, may come back.
TEST(Job, WaitsForALostHostThoughAnotherHasLeftBefore) {
  Job job = After(Job(), {"submit3 r1", "plan3", "offer m1", "offer m2", "offer m3", "launch3 1",
                          "register3 1/0", "leaves m3", "ended 1 clean on m1",
                          "ended 1 clean on m2", "ended 1 clean on m3"});
  ASSERT_EQ(job.generation.phase, GenerationPhase::kOpen);
  job = After(std::move(job), {"plan2", "launch2 2", "register 2/0", "register 2/1", "ready 2/0",
                               "ready 2/1", "silent 2 on m2", "ended 2 clean on m1"});
  EXPECT_EQ(job.generation.phase, GenerationPhase::kOpen) << JobText(job);
  EXPECT_NE(job.phase, Phase::kSuspended) << job.reason;
  job = After(std::move(job), {"awaited 3"});
  EXPECT_NE(job.phase, Phase::kSuspended) << job.reason;
}

TEST(Job, LeftByItsHostsBeforeItIsPlannedIsSuspended) {
  const Job job = After(Job(), {"submit r1", "offer m1", "leaves m1", "plan"});
  EXPECT_EQ(job.phase, Phase::kSuspended) << JobText(job) << job.reason;
  EXPECT_TRUE(IsLeftByItsHosts(job));
}

// The journal remembers the hosts that a scheduler has taken; the next run has them again.
TEST(Job, SubmittedAnewDoesNotMissHostsThatHaveLeftBefore) {
  const Job left =
      After(TrainingOnTwo(), {"leaves m1", "leaves m2", "stopped 1/0 7", "stopped 1/1 7",
                              "ended 1 clean on m1", "ended 1 clean on m2"});
  ASSERT_EQ(left.phase, Phase::kSuspended);
  const Job anew = After(left, {"restart", "submit3 r2", "plan3"});
  EXPECT_EQ(anew.phase, Phase::kPlanned) << anew.reason;
  EXPECT_EQ(anew.generation.phase, GenerationPhase::kOpen);
}

TEST(Job, AskedToStopWhileAHostLeavesIsStopped) {
  Job job = After(TrainingOnTwo(), {"offer m3", "leaves m2", "stop", "stopped 1/0 7",
                                    "stopped 1/1 7", "ended 1 clean on m1", "ended 1 clean on m2"});
  EXPECT_EQ(JobText(job), "SUSPENDED g1 closed");
  EXPECT_FALSE(IsLeftByItsHosts(job));
}

TEST(Job, TakesAHostAgainOnceAnotherAgentIsThere) {
  Job job = After(TrainingOnTwo(), {"leaves m2"});
  HostOffered offer = std::get<HostOffered>(ParseFact("offer m2"));
  EXPECT_EQ(Apply(job, offer), job) << "the agent that leaves dials again";
  offer.agent_pid = 77;
  job = Apply(std::move(job), offer);
  EXPECT_EQ(job.offers.count("m2"), 1u);
  EXPECT_TRUE(job.leaving.empty());
}

TEST(Job, WaitsForNobodyElseOnceAllWhoAreExpectedAreThere) {
  Submitted submitted = std::get<Submitted>(ParseFact("submit3 r1"));
  submitted.expected_hosts = 2;
  Job job = After(Apply(Job(), submitted), {"plan3", "offer m1"});
  EXPECT_TRUE(ExpiredAfter(kFirstHostsMs - 1, job).empty()) << "one is on its way";
  job = After(std::move(job), {"offer m2"});
  const std::vector<Event> events = ExpiredAfter(1, job);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<HostsAwaited>(events[0]));
}

}  // namespace
}  // namespace weft
