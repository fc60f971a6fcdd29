// A job is planned against the memory that its hosts offer, and the host that binds is named.
#include "coordinator/host_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "coordinator/hosts.h"
#include "coordinator/job.h"
#include "coordinator/planning.h"
#include "coordinator/preflight_messages.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::HasSubstr;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// Up to three hosts of two slots, of 2 GiB each as the profile says; the hosts have 16 GiB.
Job OnHosts(int here) {
  Job job;
  job.id = "job-1";
  job.phase = Phase::kPlanned;
  job.spec = SampleJob();
  job.spec.cluster.nodes = 3;
  job.spec.cluster.slots_per_node = 2;
  job.spec.cluster.device.memory_bytes = 2 * kGiB;
  job.spec.hosts.least_nodes = 1;
  job.spec.layout = {};
  job.spec.fault_tolerance.preflight = false;
  for (int i = 0; i < here; ++i) {
    OfferedHost& host = job.offers[std::to_string(i)];
    host.host = absl::StrCat("h", i);
    host.free_bytes = 16 * kGiB;
  }
  job.generation.phase = GenerationPhase::kOpen;
  job.generation.waited = true;
  return job;
}

TEST(MemoryOfHosts, ChangesNothingWhereItIsAsTheJobSaysOrNotKnown) {
  Job job = OnHosts(3);
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{3, 2}));
  job.offers["1"].free_bytes = 0;
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{3, 2})) << "not known";
  job.offers["1"].free_bytes = 5 * kGiB;
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{3, 2})) << "just enough";
  EXPECT_EQ(MemoryNote({3, 2}, job), "");
}

TEST(MemoryOfHosts, IsPlannedForAndTheHostThatBindsIsNamed) {
  Job job = OnHosts(3);
  job.offers["2"].free_bytes = 3277 * kMiB;  // a sixteenth is left to the system
  const ClusterShape shape = {3, 2, 1536 * kMiB};
  ASSERT_EQ(ShapeToPlanFor(job), shape);
  const Event event = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(event));
  const Planned& planned = std::get<Planned>(event);
  EXPECT_EQ(planned.shape, shape);
  EXPECT_LE(planned.planned_bytes, 1536 * kMiB);
  EXPECT_EQ(planned.note,
            "; planned for 3 of 3 hosts with 1.50 GiB of memory a rank, not 2.00 GiB: host h2: "
            "3.20 GiB free for 2 ranks");
  job.layout = planned.layout;
  job.shape = shape;
  ASSERT_TRUE(SharesOf(job).ok());
  job.offers["2"].free_bytes = 2 * kGiB;
  EXPECT_FALSE(SharesOf(job).ok()) << "it has less than was planned for";
}

// Whatever the hosts have, what is planned fits beside the libraries, or there is no plan.
TEST(MemoryOfHosts, IsNeverLessThanWhatIsPlanned) {
  Job job = OnHosts(3);
  const auto plan_with = [&](int64_t free_bytes) {
    for (auto& [machine, host] : job.offers) host.free_bytes = free_bytes;
    return PlanOf(job);
  };
  const Event ample = plan_with(16 * kGiB);
  ASSERT_TRUE(std::holds_alternative<Planned>(ample));
  int64_t free_bytes = 2 * kGiB;
  for (; free_bytes > 0; free_bytes -= 16 * kMiB) {
    const Event event = plan_with(free_bytes);
    if (!std::holds_alternative<Planned>(event)) break;
    const Planned& planned = std::get<Planned>(event);
    const int64_t libraries = job.spec.cluster.device.library_bytes;
    ASSERT_LE(planned.planned_bytes, planned.shape.slot_bytes - libraries);
  }
  EXPECT_GT(free_bytes, 0) << "there is a plan for no memory";
}

TEST(MemoryOfHosts, LeavesThePoorestHostAsideWhereThereIsNoPlanWithIt) {
  Job job = OnHosts(3);
  job.offers["0"].free_bytes = 200 * kMiB;
  const Event refused = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<PlanRefused>(refused));
  EXPECT_THAT(std::get<PlanRefused>(refused).message, HasSubstr("the libraries of a rank alone"));
  job = Apply(job, refused);
  EXPECT_THAT(job.reason, HasSubstr("no plan for 3 of 3 with 80.0 MiB of memory a rank, not 2.00 "
                                    "GiB: host h0: 200 MiB free for 2 ranks: the libraries"));
  ASSERT_EQ(ShapeToPlanFor(job), (ClusterShape{2, 2}));
  const Event event = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(event));
  EXPECT_EQ(std::get<Planned>(event).note,
            "; planned for 2 of 3 hosts; 1 more idles as a spare, for there is no plan for 3 with "
            "80.0 MiB of memory a rank, not 2.00 GiB: host h0: 200 MiB free for 2 ranks");
  job = Apply(job, event);
  const auto shares = SharesOf(job);
  ASSERT_TRUE(shares.ok()) << shares.status();
  for (const HostShare& share : shares->shares) EXPECT_NE(share.host, "h0");
}

// Fewer ranks of a host have more memory each.
TEST(MemoryOfHosts, TakesFewerRanksOfAHostWhereMemoryBinds) {
  Job job = OnHosts(1);
  job.offers["0"].free_bytes = 3 * kGiB;
  job.refused.insert({1, 2, 1536 * kMiB});
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{1, 1}));
  job.spec.cluster.device.backend = BackendKind::kCuda;
  job.refused.insert({1, 2});
  EXPECT_EQ(ShapeToPlanFor(job), std::nullopt) << "each has a device of its own";
}

// No host that anybody has named is waited for, as where hosts fail their check.
TEST(MemoryOfHosts, EndsAJobThatHasNoPlanOnAnyOfItsHosts) {
  Job job = OnHosts(1);
  job.spec.cluster.nodes = 1;
  job.spec.cluster.slots_per_node = 1;
  job.offers["0"].free_bytes = 200 * kMiB;
  job = Apply(job, PlanOf(job));
  EXPECT_EQ(job.phase, Phase::kFailed);
  EXPECT_THAT(job.reason, HasSubstr("there is no plan for 1 of 1 with 176 MiB of memory a rank"));
  job = OnHosts(1);
  job.offers["0"].free_bytes = 200 * kMiB;
  job = Apply(job, PlanOf(job));
  EXPECT_EQ(job.phase, Phase::kPlanned) << "more may come";
}

// Degrees that are fixed need all four ranks, which fewer of them cannot be.
TEST(MemoryOfHosts, IsTheReasonWhereALayoutOfFixedDegreesFindsNoRoom) {
  Job job = OnHosts(1);
  job.spec.cluster.nodes = 1;
  job.spec.cluster.slots_per_node = 2;
  job.spec.layout.dp = 2;
  job.offers["0"].free_bytes = 500 * kMiB;
  job = Apply(job, PlanOf(job));
  EXPECT_EQ(job.phase, Phase::kPlanned) << "one rank has more";
  job = Apply(job, PlanOf(job));
  EXPECT_EQ(job.phase, Phase::kFailed);
  EXPECT_THAT(job.reason,
              HasSubstr("there is no plan for 1 of 1 with 224 MiB of memory a rank, not "
                        "2.00 GiB: host h0: 500 MiB free for 2 ranks: the libraries"));
}

// Programs and pages that ranks share are there once, not once for each rank.
TEST(MemoryOfHosts, IsLessByWhatWeftTakesOnce) {
  Job job = OnHosts(1);
  job.offers["0"].free_bytes = kGiB;
  EXPECT_EQ(SlotBytes(job.offers["0"], 4, job.spec), 240 * kMiB);
  job.spec.cluster.host_library_bytes = 128 * kMiB;
  EXPECT_EQ(SlotBytes(job.offers["0"], 4, job.spec), 208 * kMiB);
  EXPECT_EQ(SlotBytes(job.offers["0"], 1, job.spec), 832 * kMiB);
  job.spec.cluster.device.backend = BackendKind::kCuda;
  job.offers["0"].gpu_free_bytes = kGiB;
  EXPECT_EQ(SlotBytes(job.offers["0"], 4, job.spec), kGiB) << "a GPU's is its own";
}

// A host is checked for what would be planned for it.
TEST(MemoryOfHosts, IsCheckedForWhatItOffersWhereThatIsLessThanThePlan) {
  Job job = OnHosts(1);
  job.planned_bytes = 1900 * kMiB;
  CheckRound round;
  round.Begin(1, 0, {{"0", {"h0"}}});
  const auto rank_bytes = [&] {
    return CheckHostOrder(job, round, "0", "", 0).check_host().rank_bytes();
  };
  EXPECT_EQ(rank_bytes(), 1900 * kMiB);
  job.offers["0"].free_bytes = 3277 * kMiB;
  EXPECT_EQ(rank_bytes(), 1536 * kMiB);
}

TEST(IsRefused, HoldsForNoMoreMemoryThanWasRefused) {
  Job job = OnHosts(1);
  job.refused = {{3, 2, 4 * kGiB}};
  EXPECT_TRUE(IsRefused({3, 2, 4 * kGiB}, job));
  EXPECT_TRUE(IsRefused({3, 2, 3 * kGiB}, job));
  EXPECT_FALSE(IsRefused({3, 2, 5 * kGiB}, job));
  EXPECT_FALSE(IsRefused({3, 2}, job)) << "as much as the job says";
  EXPECT_FALSE(IsRefused({2, 2, 3 * kGiB}, job));
  job.refused = {{3, 2}};
  EXPECT_TRUE(IsRefused({3, 2, 3 * kGiB}, job));
}

TEST(MemoryOfHosts, OfGpusIsThatOfTheOneWithTheLeast) {
  Job job = OnHosts(2);
  job.spec.cluster.nodes = 2;
  job.spec.cluster.device.backend = BackendKind::kCuda;
  job.spec.cluster.device.memory_bytes = 80 * kGiB;
  job.spec.layout.offload_optimizer = OffloadDevice::kNone;
  for (auto& [machine, host] : job.offers) host.gpu_free_bytes = 80 * kGiB - 600 * kMiB;
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{2, 2})) << "the driver's own share";
  job.offers["1"].gpu_free_bytes = 60 * kGiB;
  job.offers["1"].gpu_text = "GPU 0000:3b:00.0 has 60.0 GiB of 80.0 GiB free";
  ASSERT_EQ(ShapeToPlanFor(job), (ClusterShape{2, 2, 60 * kGiB}));
  EXPECT_EQ(MemoryNote({2, 2, 60 * kGiB}, job),
            " with 60.0 GiB of memory a rank, not 80.0 GiB: host h1: GPU 0000:3b:00.0 has 60.0 "
            "GiB of 80.0 GiB free");
}

TEST(MemoryOfHosts, CountsForWhatGpusOffload) {
  Job job = OnHosts(2);
  job.spec.cluster.nodes = 2;
  job.spec.cluster.device.backend = BackendKind::kCuda;
  job.spec.cluster.host_memory_bytes = 64 * kGiB;
  job.spec.layout.offload_optimizer = OffloadDevice::kCpu;
  const ClusterShape shape = {2, 2, 0, 15 * kGiB};
  ASSERT_EQ(ShapeToPlanFor(job), shape);
  EXPECT_EQ(SpecFor(shape, job.spec)->cluster.host_memory_bytes, 15 * kGiB);
  EXPECT_EQ(MemoryNote(shape, job),
            " with 15.0 GiB of a host for what is offloaded, not 64.0 GiB: host h0: 16.0 GiB free");
  job.spec.layout.offload_optimizer = OffloadDevice::kNone;
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{2, 2})) << "nothing is";
}

}  // namespace
}  // namespace weft
