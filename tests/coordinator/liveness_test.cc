// These tests say who is found silent, and when, in a time that the test makes.
#include "coordinator/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "coordinator/lease_book.h"
#include "tests/coordinator/job_script.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kLeaseMs = 8000;

Job JobAfter(const std::vector<std::string>& facts) {
  Job job;
  for (const std::string& fact : facts) job = Apply(std::move(job), ParseFact(fact));
  return job;
}

Job Training() {
  return JobAfter(
      {"submit r1", "plan", "launch 1", "register 1/0", "register 1/1", "ready 1/0", "ready 1/1"});
}

// The host of all ranks, machine "", has a lease that lasts.
Clocks Heard(std::map<int, int64_t> heard_ms, int64_t generation_since_ms, int64_t looked_ms) {
  Clocks clocks;
  clocks.heard_ms = std::move(heard_ms);
  clocks.generation_since_ms = generation_since_ms;
  clocks.looked_ms = looked_ms;
  clocks.lease_end_ms[""] = int64_t{1} << 40;
  return clocks;
}

TEST(Lost, NamesWhoWasSilentForLongerThanTheLease) {
  const std::map<int, int64_t> heard_ms = {{0, 10000}, {1, 2000}, {2, 1999}, {3, 1000}};
  const std::vector<SilentRank> lost = Lost(heard_ms, 10000, kLeaseMs);
  ASSERT_EQ(lost.size(), 2u);
  EXPECT_EQ(lost[0].rank, 2);
  EXPECT_EQ(lost[1].rank, 3);
  EXPECT_EQ(lost[1].reason, "nothing heard for 9.0 s, the lease is 8.0 s");
}

TEST(NoneSilentUntil, IsWhenTheFirstCouldBe) {
  Clocks clocks = Heard({{0, 10000}, {1, 2000}}, 0, 0);
  EXPECT_EQ(NoneSilentUntil(clocks, kLeaseMs), 10000);
  EXPECT_TRUE(Lost(clocks.heard_ms, 10000, kLeaseMs).empty());
  EXPECT_EQ(Lost(clocks.heard_ms, 10001, kLeaseMs).size(), 1u);
  EXPECT_EQ(NoneSilentUntil(Heard({}, 0, 0), kLeaseMs), 0);
}

TEST(Expired, LeavesRanksAloneThatLiveByAPromiseUntilItIsOver) {
  const Job job = Training();
  Clocks clocks = Heard({{0, 0}, {1, 0}}, 0, 50000);
  EXPECT_EQ(Expired(job, clocks, 50000, kLeaseMs).size(), 2u) << "nothing was promised to them";
  clocks.promised = {""};
  clocks.lease_end_ms[""] = 600000;
  EXPECT_TRUE(Expired(job, clocks, 50000, kLeaseMs).empty());
  EXPECT_TRUE(Expired(job, clocks, 600000, kLeaseMs).empty());
  const std::vector<Event> events = Expired(job, clocks, 600001 + kSilenceMarginMs, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<HostLost>(events[0]));
}

TEST(LeaseBook, KeepsAPromiseUntilTheMachineHasNothingButItsLease) {
  LeaseBook book;
  book.SetLength(kLeaseMs);
  book.Assume("m1", kLeaseMs);
  book.Promise("m1", 600000);
  EXPECT_EQ(book.EndOf("m1"), 600000);
  book.Admit(1, "m1");
  book.Grant(1, 1000, /*has_promise=*/true);
  EXPECT_TRUE(book.HasPromise("m1"));
  EXPECT_EQ(book.EndOf("m1"), 600000) << "it may be gone before it hears of its lease";
  book.Grant(1, 2000);
  EXPECT_FALSE(book.HasPromise("m1"));
  EXPECT_EQ(book.EndOf("m1"), 2000 + kLeaseMs);
}

TEST(LeaseBook, WaitsForThoseThatWereToldOfAnAbsence) {
  LeaseBook book;
  for (const int64_t stream : {1, 2}) book.Admit(stream, "m" + std::to_string(stream));
  EXPECT_TRUE(book.AllHavePromises());
  for (const int64_t stream : {1, 2, 3}) book.AwaitPromise(stream);
  book.Grant(1, 1000);
  EXPECT_FALSE(book.AllHavePromises()) << "a heartbeat from before it heard";
  book.Grant(1, 1000, true);
  EXPECT_FALSE(book.AllHavePromises());
  book.Dismiss(2);
  EXPECT_TRUE(book.AllHavePromises()) << "one has ended, one was never there";
}

TEST(ShiftedByStall, BlamesNobodyForTheTimeTheCoordinatorSleptThrough) {
  Clocks clocks = Heard({{0, 1000}, {1, 900}}, 500, 1000);
  clocks = ShiftedByStall(clocks, 31000, 500);
  EXPECT_TRUE(Lost(clocks.heard_ms, 31000, kLeaseMs).empty());
  EXPECT_EQ(clocks.heard_ms[0], 1000 + 29500);
  EXPECT_EQ(clocks.heard_ms[1], 900 + 29500);
  EXPECT_EQ(clocks.generation_since_ms, 500 + 29500);
  EXPECT_EQ(clocks.looked_ms, 31000);
}

TEST(ShiftedByStall, LeavesOrdinaryTicksAlone) {
  const Clocks clocks = Heard({{0, 1000}}, 500, 1000);
  EXPECT_EQ(ShiftedByStall(clocks, 1500, 500).heard_ms.at(0), 1000);
  EXPECT_EQ(ShiftedByStall(Heard({{0, 1000}}, 0, 0), 90000, 500).heard_ms.at(0), 1000);
}

TEST(Expired, TellsOfALostWorkerButNotOfAFinishedOne) {
  const Clocks clocks = Heard({{0, 0}, {1, 0}}, 0, 0);
  const std::vector<Event> events = Expired(Training(), clocks, kLeaseMs + 1, kLeaseMs);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(std::get<WorkerLost>(events[0]).rank, 0);
  const Job job = Apply(Training(), ParseFact("finish 1/0 20"));
  const std::vector<Event> later = Expired(job, clocks, kLeaseMs + 1, kLeaseMs);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(std::get<WorkerLost>(later[0]).rank, 1);
  EXPECT_TRUE(Expired(Training(), clocks, kLeaseMs, kLeaseMs).empty());
}

TEST(Expired, NamesTheRanksThatDidNotStart) {
  const Job job = JobAfter({"submit r1", "plan", "launch 1", "register 1/0"});
  const Clocks clocks = Heard({{0, 300000}}, 0, 0);
  EXPECT_TRUE(Expired(job, clocks, 300000, kLeaseMs).empty());
  const std::vector<Event> events = Expired(job, clocks, 300001, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(std::get<Overdue>(events[0]).reason,
              HasSubstr("ranks 1 of 2 have not registered within comm.init_timeout_seconds 300"));
  const Job sealed = Apply(Apply(job, ParseFact("register 1/1")), ParseFact("ready 1/1"));
  // Loading may take longer than meeting does.
  const Clocks heard = Heard({{0, kLoadLimitMs}, {1, kLoadLimitMs}}, 0, 0);
  EXPECT_TRUE(Expired(sealed, heard, kLoadLimitMs, kLeaseMs).empty());
  const std::vector<Event> later = Expired(sealed, heard, kLoadLimitMs + 1, kLeaseMs);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_THAT(std::get<Overdue>(later[0]).reason,
              HasSubstr("ranks 0 of 2 have not loaded what they start from within 1800 s"));
}

TEST(Expired, CountsAStoppedGenerationAsGoneOnlyAfterLeaseAndMargin) {
  const Job job = Apply(Training(), ParseFact("lost 1/1"));
  Clocks clocks = Heard({{0, 2000}, {1, 0}}, 1000, 0);
  clocks.lease_end_ms[""] = 2000 + kLeaseMs;
  EXPECT_TRUE(Expired(job, clocks, 2000 + kLeaseMs + kSilenceMarginMs, kLeaseMs).empty());
  const std::vector<Event> events =
      Expired(job, clocks, 2001 + kLeaseMs + kSilenceMarginMs, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<HostLost>(events[0]).generation, 1);
}

TEST(Expired, GivesFinishedWorkersTimeToExit) {
  const Job job = Apply(Apply(Training(), ParseFact("finish 1/0 20")), ParseFact("finish 1/1 20"));
  Clocks clocks = Heard({{0, 0}, {1, 0}}, 0, 0);
  clocks.lease_end_ms[""] = kExitGraceMs;
  EXPECT_TRUE(Expired(job, clocks, kExitGraceMs, kLeaseMs).empty());
  const std::vector<Event> events = Expired(job, clocks, kExitGraceMs + 1, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(std::get<Overdue>(events[0]).reason, HasSubstr("did not exit within 10 s"));
}

TEST(Expired, GivesASaveItsOwnLimitAndNamesTheSlowRank) {
  const Job job = Apply(Training(), ParseFact("shard 1/0 10"));
  Clocks clocks = Heard({{0, kSaveLimitMs}, {1, kSaveLimitMs}}, 0, 0);
  clocks.save = 10;
  clocks.save_since_ms = 500;
  EXPECT_TRUE(Expired(job, clocks, 500 + kSaveLimitMs, kLeaseMs).empty());
  const std::vector<Event> events = Expired(job, clocks, 501 + kSaveLimitMs, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_THAT(std::get<Overdue>(events[0]).reason,
              HasSubstr("ranks 1 of 2 have not done their part of saving step 10 within 1800 s"));
  const Job granted = Apply(job, ParseFact("shard 1/1 10"));
  EXPECT_THAT(std::get<Overdue>(Expired(granted, clocks, 501 + kSaveLimitMs, kLeaseMs)[0]).reason,
              HasSubstr("ranks 0 of 2"))
      << "rank 0 commits";
  const Job over = Apply(granted, ParseFact("committed 1/0 10"));
  EXPECT_TRUE(Expired(over, clocks, 501 + kSaveLimitMs, kLeaseMs).empty());
}

// Three hosts with a rank each.
Job OnThreeHosts() {
  return JobAfter({"submit3 r1", "offer m1", "offer m2", "offer m3", "plan3", "launch3 1"});
}

TEST(Expired, BlamesTheHostWhoseLeaseIsOverAndNotItsRanks) {
  Job job = OnThreeHosts();
  for (const char* fact :
       {"register3 1/0", "register3 1/1", "register3 1/2", "ready 1/0", "ready 1/1", "ready 1/2"}) {
    job = Apply(std::move(job), ParseFact(fact));
  }
  Clocks clocks = Heard({{0, 9000}, {1, 1000}, {2, 9000}}, 0, 0);
  clocks.lease_end_ms = {{"m1", 17000}, {"m2", 9000}, {"m3", 17000}};
  EXPECT_TRUE(Expired(job, clocks, 9001 + kSilenceMarginMs - 1, kLeaseMs).empty());
  const std::vector<Event> events = Expired(job, clocks, 9001 + kSilenceMarginMs, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(std::get<HostLost>(events[0]).machine, "m2");
  job = Apply(std::move(job), events[0]);
  EXPECT_EQ(JobText(job), "RECOVERING g1 stopping | abort g1, stop_group g1");
  EXPECT_THAT(job.reason, HasSubstr("host m2 lost: nothing heard of its agent since its lease of "
                                    "8.0 s ended; resuming after step 0"));
}

TEST(Expired, WaitsForHostsFirstLongAndThenAMoment) {
  Job job = JobAfter({"submit3 r1", "plan3", "offer m1"});
  Clocks clocks = Heard({}, 0, 0);
  EXPECT_TRUE(Expired(job, clocks, kFirstHostsMs, kLeaseMs).empty());
  std::vector<Event> events = Expired(job, clocks, kFirstHostsMs + 1, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  job = Apply(std::move(job), events[0]);
  EXPECT_EQ(job.reason, "waiting for hosts: 1 of at least 2 are there: m1");
  EXPECT_TRUE(Expired(job, clocks, kFirstHostsMs + 2, kLeaseMs).empty()) << "said once";
  Job later = OnThreeHosts();
  for (const char* fact : {"ended 1 on m1", "ended 1 on m2", "silent 1 on m3"}) {
    later = Apply(std::move(later), ParseFact(fact));
  }
  EXPECT_EQ(JobText(later), "RECOVERING g2 open | launch g2");
  events = Expired(later, clocks, kLastCallMs + 1, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  later = Apply(std::move(later), events[0]);
  EXPECT_EQ(JobText(later), "RECOVERING g2 open | plan") << "for the two that are left";
}

TEST(Expired, TakesHostsThatCameBackOnceTheyHaveStayed) {
  Job job =
      JobAfter({"submit3 r1", "plan3", "offer m1", "offer m2", "awaited 1", "plan2", "launch2 1",
                "register 1/0", "register 1/1", "ready 1/0", "ready 1/1", "offer m3"});
  ASSERT_EQ(JobText(job), "RUNNING g1 training | begin g1");
  job.spec.fault_tolerance.steady_seconds = 5;
  constexpr int64_t kSteadyMs = 5000;
  Clocks clocks = Heard({{0, kSteadyMs}, {1, kSteadyMs}}, 0, 0);
  clocks.lease_end_ms = {{"m1", int64_t{1} << 40}, {"m2", int64_t{1} << 40}};
  EXPECT_TRUE(Expired(job, clocks, kSteadyMs, kLeaseMs).empty());
  const std::vector<Event> events = Expired(job, clocks, kSteadyMs + 1, kLeaseMs);
  ASSERT_EQ(events.size(), 1u);
  job = Apply(std::move(job), events[0]);
  EXPECT_EQ(JobText(job), "RUNNING g1 training | begin g1") << "no step is lost for it";
  job = Apply(std::move(job), ParseFact("shard 1/0 10"));
  job = Apply(std::move(job), ParseFact("shard 1/1 10"));
  job = Apply(std::move(job), ParseFact("committed 1/0 10"));
  EXPECT_EQ(JobText(job), "RECOVERING g1 stopping | abort g1, stop_group g1");
  EXPECT_EQ(job.failures_since_progress, 0);
  EXPECT_FALSE(job.last_failure) << "nobody failed";
  job = Apply(std::move(job), ParseFact("ended 1 exit 75 on m1"));
  job = Apply(std::move(job), ParseFact("ended 1 exit 75 on m2"));
  EXPECT_EQ(JobText(job), "RECOVERING g2 open | plan") << "for three again";
  EXPECT_EQ(job.newest().step, 10);
}

TEST(Expired, HasNothingToSayOfAGenerationThatDoesNotRun) {
  const Clocks clocks = Heard({{0, 0}}, 0, 0);
  for (const Job& job :
       {Job(), JobAfter({"submit r1"}), JobAfter({"offer m1", "submit r1", "plan"})}) {
    EXPECT_TRUE(Expired(job, clocks, 1 << 30, kLeaseMs).empty()) << JobText(job);
  }
}

}  // namespace
}  // namespace weft
