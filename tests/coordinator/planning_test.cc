// A plan that came with a job is checked, and counts on the cluster that it was made for alone.
#include "coordinator/planning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "coordinator/hosts.h"
#include "coordinator/offered_slots.h"
#include "plan/keys/cluster_keys.h"
#include "plan/search/search.h"
#include "plan/spec/grid.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::HasSubstr;

// A job with a layout that a search would not choose.
Job Given(const std::string& planned_for) {
  Job job;
  job.id = "job-1";
  job.spec = SampleJob();
  job.layout = Layout{.dp = 1, .gradient_accumulation_steps = job.spec.training.global_batch_size};
  job.planned_for = planned_for;
  return job;
}

TEST(PlanOf, KeepsThePlanThatWasMadeForThisCluster) {
  for (const std::string& planned_for : {std::string(), ClusterFingerprint(SampleJob().cluster)}) {
    const Job job = Given(planned_for);
    const Event event = PlanOf(job);
    ASSERT_TRUE(std::holds_alternative<Planned>(event));
    const Planned& planned = std::get<Planned>(event);
    EXPECT_TRUE(planned.layout == *job.layout);
    EXPECT_EQ(planned.planned_bytes, PlanFor(job.spec, *job.layout, Purpose::kRun)->peak_bytes());
    EXPECT_GT(planned.predicted_step_s, 0);
    EXPECT_EQ(planned.note, "");
  }
}

TEST(PlanOf, PlansAnewOnAnotherClusterAndSaysSo) {
  Job job = Given(ClusterFingerprint(SampleJob().cluster));
  job.spec.cluster.device.memory_bytes += 1;
  const Event event = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(event));
  const Planned& planned = std::get<Planned>(event);
  EXPECT_TRUE(planned.layout == FindPlan(job.spec, Purpose::kRun)->layout);
  EXPECT_FALSE(planned.layout == *job.layout);
  EXPECT_THAT(planned.note, HasSubstr("; planned anew: the plan that came was made for cluster "));
}

TEST(PlanOf, RefusesAPlanThatBreaksARule) {
  Job job = Given("");
  job.layout->tp = 3;
  const Event event = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<PlanRefused>(event));
  EXPECT_EQ(std::get<PlanRefused>(event).code, absl::StatusCode::kInvalidArgument);
}

// A job on up to four hosts of a slot each, of which some are there.
Job OnFourHosts(int here) {
  Job job = Given("");
  job.phase = Phase::kPlanned;
  job.spec.cluster.nodes = 4;
  job.spec.cluster.slots_per_node = 1;
  job.spec.hosts.least_nodes = 2;
  job.spec.layout = {};
  job.spec.fault_tolerance.preflight = false;
  for (int i = 0; i < here; ++i) job.offers[std::to_string(i)] = {"h", 0};
  job.generation.phase = GenerationPhase::kOpen;
  job.generation.waited = true;
  return job;
}

TEST(PlanOf, TriesFewerHostsWhereThereIsNoPlanForAllAndSaysWhoIdles) {
  Job job = OnFourHosts(3);
  job.refused = {{3, 1}};
  const Event event = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(event));
  EXPECT_EQ(std::get<Planned>(event).shape, (ClusterShape{2, 1}));
  EXPECT_EQ(std::get<Planned>(event).note,
            "; planned for 2 of 4 hosts; 1 more idles as a spare, for there is no plan for 3");
}

TEST(PlanOf, IsForWhatHostsOfferAndSaysHowThatDiffersFromTheFile) {
  Job job = OnFourHosts(4);
  job.spec.cluster.slots_per_node = 2;
  job.shape = {4, 2};
  job.offers["1"].slots = 1;
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{3, 2})) << "six slots are more than four";
  const Event without = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(without));
  EXPECT_EQ(std::get<Planned>(without).note,
            "; planned for 3 of 4 hosts; 1 more idles, offering fewer slots than the rest");
  job.offers["2"].slots = job.offers["3"].slots = 1;
  const Event with = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(with));
  EXPECT_EQ(std::get<Planned>(with).shape, (ClusterShape{4, 1}));
  EXPECT_LE(std::get<Planned>(with).layout.world_size(), 4);
  EXPECT_EQ(std::get<Planned>(with).note, "; planned for 4 of 4 hosts with 1 of 2 slots each");
}

TEST(SlotsOf, CountGpusWhereRanksRunOnThem) {
  Job job;
  job.spec = SampleJob();
  job.spec.cluster.slots_per_node = 8;
  EXPECT_EQ(SlotsOf({.host = "a", .gpus = 4}, job), 8) << "of a CPU job";
  job.spec.cluster.device.backend = BackendKind::kCuda;
  EXPECT_EQ(SlotsOf({.host = "a", .gpus = 4}, job), 4);
  EXPECT_EQ(SlotsOf({.host = "a", .gpus = 16}, job), 8) << "no more than the job says";
  EXPECT_EQ(SlotsOf({.host = "a", .slots = 2, .gpus = 4}, job), 2);
  EXPECT_EQ(SlotsOf({.host = "a"}, job), 8) << "not known";
}

TEST(SlotsOf, AreWhatTheAgentOffersWhereNobodyHasSaidHowMany) {
  Job job;
  job.spec = SampleJob();
  job.spec.cluster.slots_per_node = 1;
  job.spec.threads_per_worker = 2;
  job.slots_as_offered = true;
  EXPECT_EQ(SlotsOf({.host = "a", .gpus = 4, .cores = 8}, job), 4) << "two cores a worker";
  EXPECT_EQ(SlotsOf({.host = "a", .slots = 3, .cores = 8}, job), 3) << "its --slots";
  EXPECT_EQ(SlotsOf({.host = "a", .cores = 1}, job), 1) << "too few cores: the profile's";
  job.spec.cluster.device.backend = BackendKind::kCuda;
  EXPECT_EQ(SlotsOf({.host = "a", .gpus = 6, .cores = 8}, job), 6);
  EXPECT_EQ(SlotsOf({.host = "a", .cores = 8}, job), 1) << "no GPU is known of";
  EXPECT_EQ(SlotsOf({.host = "a", .slots = 1 << 30}, job), 4096) << "no agent offers that many";
}

TEST(PlanOf, IsForTheSlotsThatAgentsOfferWhereNobodyHasSaidHowMany) {
  Job job = OnFourHosts(4);
  for (auto& [machine, host] : job.offers) host.cores = 2;
  EXPECT_EQ(ShapeToPlanFor(job).value_or(job.shape).slots_per_node, 1) << "the job says so";
  job.slots_as_offered = true;
  ASSERT_EQ(ShapeToPlanFor(job), (ClusterShape{4, 2}));
  const Event event = PlanOf(job);
  ASSERT_TRUE(std::holds_alternative<Planned>(event));
  EXPECT_EQ(std::get<Planned>(event).shape, (ClusterShape{4, 2}));
  EXPECT_GT(std::get<Planned>(event).layout.world_size(), 4);
  EXPECT_EQ(std::get<Planned>(event).note,
            "; planned for 4 of 4 hosts with 2 slots each, as they offer, not 1");
  job.offers["3"].cores = 1;
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{3, 2})) << "the smallest of those that are used";
  job.refused.insert({3, 2});
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{4, 1}));
  for (auto& [machine, host] : job.offers) host.cores = 8;
  job.refused = {{4, 8}};
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{3, 8}));
  job.refused.insert({{3, 8}, {2, 8}});
  EXPECT_EQ(ShapeToPlanFor(job), (ClusterShape{4, 1})) << "what it was submitted with";
}

// Two replicas of two stages are on four hosts of a slot: where racks are known, each stays in one.
TEST(SharesOf, KeepAReplicasStagesInADomain) {
  Job job = OnFourHosts(0);
  const char* const racks[] = {"rack1", "rack2", "rack1", "rack2"};
  for (int i = 0; i < 4; ++i) {
    OfferedHost& host = job.offers[std::to_string(i)];
    host.host = "h" + std::to_string(i);
    host.domain = racks[i];
  }
  job.layout = Layout{.dp = 2, .pp = 2};
  job.shape = {4, 1};
  const auto shares = SharesOf(job);
  ASSERT_TRUE(shares.ok()) << shares.status();
  std::map<int, std::string> hosts;
  for (const HostShare& share : shares->shares) {
    for (const int rank : share.ranks) hosts[rank] = share.host;
  }
  const RankGrid grid(/*dp=*/2, /*pp=*/2, /*cp=*/1, /*tp=*/1);
  std::set<std::string> racks_used;
  for (int replica = 0; replica < 2; ++replica) {
    std::set<std::string> own;
    for (int stage = 0; stage < 2; ++stage) {
      const int rank = grid.RankOf({.dp = replica, .pp = stage});
      own.insert(racks[hosts[rank].back() - '0']);
    }
    EXPECT_EQ(own.size(), 1u) << "replica " << replica;
    racks_used.insert(own.begin(), own.end());
  }
  EXPECT_EQ(racks_used.size(), 2u);
}

// The agent's word is the host's own; the file's holds for those that say nothing.
TEST(SharesOf, KnowDomainsFromTheFileWhereAgentsSayNone) {
  Job job = OnFourHosts(4);
  for (auto& [machine, host] : job.offers) host.host = absl::StrCat("h", machine);
  job.layout = Layout{.dp = 2, .pp = 2};
  job.shape = {4, 1};
  job.spec.hosts.failure_domains = {{"rack1", "h0,h3"}, {"rack2", "h[1-2]"}};
  EXPECT_THAT(SharesOf(job)->picture, HasSubstr("h0 (rack1): rank 0, stage 0, replica 0\n"
                                                "  h1 (rack2): rank 1, stage 0, replica 1\n"
                                                "  h3 (rack1): rank 2, stage 1, replica 0\n"
                                                "  h2 (rack2): rank 3, stage 1, replica 1\n"));
  job.offers["0"].domain = "rack9";
  EXPECT_THAT(SharesOf(job)->picture, HasSubstr("h0 is in rack9, as its agent says; "
                                                "cluster.failure_domains says rack1\n"));
  job.offers["0"].domain = "rack1";
  EXPECT_THAT(SharesOf(job)->picture, Not(HasSubstr("as its agent says")));
  job.offers["0"].domain = "rack9";
  job.spec.hosts.failure_domains = {{"rack2", "h[1-2]"}};
  EXPECT_THAT(SharesOf(job)->picture, HasSubstr("h0 (rack9)"));
  EXPECT_THAT(SharesOf(job)->picture, HasSubstr("h3: rank")) << "of it nothing is known";
}

TEST(GrowthOf, IsNoneWhereThereIsNoPlan) {
  Job job = OnFourHosts(3);
  job.shape = {2, 1};
  job.spec.layout.dp = 4;
  job.spec.layout.tp = job.spec.layout.pp = 1;
  const Event refused = GrowthOf(job);
  ASSERT_TRUE(std::holds_alternative<PlanRefused>(refused)) << "four ranks on three hosts";
  EXPECT_EQ(std::get<PlanRefused>(refused).shape, (ClusterShape{3, 1}));
  job.offers["3"] = {"h", 0};
  EXPECT_TRUE(std::holds_alternative<MoreHosts>(GrowthOf(job)));
  job.layout = std::get<Planned>(PlanOf(job)).layout;
  EXPECT_TRUE(std::holds_alternative<PlanRefused>(GrowthOf(job))) << "the same again";
}

TEST(ClusterFingerprint, TellsAllButThePrice) {
  Cluster cluster = SampleJob().cluster;
  const std::string before = ClusterFingerprint(cluster);
  EXPECT_EQ(before.size(), 16u);
  cluster.price_per_device_hour = 2;
  EXPECT_EQ(ClusterFingerprint(cluster), before);
  cluster.slots_per_node += 1;
  EXPECT_NE(ClusterFingerprint(cluster), before);
}

TEST(CheckNodes, RefusesSizesThatNoPlanFits) {
  JobSpec spec = SampleJob();
  EXPECT_TRUE(CheckNodes(spec, 1, 1).ok()) << CheckNodes(spec, 1, 1);
  spec.cluster.device.memory_bytes = spec.cluster.device.library_bytes + 1000;
  const absl::Status one = CheckNodes(spec, 1, 1);
  EXPECT_EQ(one.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(one.message()), HasSubstr("there is no plan for 1 host: "));
  EXPECT_THAT(std::string(CheckNodes(spec, 1, 3).message()),
              HasSubstr("there is no plan for 3 hosts, nor for fewer down to 1: "));
  EXPECT_TRUE(CheckNodes(spec, 1, 9).ok()) << "nobody has planned for one";
}

TEST(CheckNodes, IsContentWithAnySize) {
  JobSpec spec = SampleJob();
  spec.layout.pp = 1;
  spec.layout.tp = 1;
  spec.layout.cp = 1;
  spec.layout.dp = 2 * spec.cluster.slots_per_node;
  ASSERT_TRUE(CheckNodes(spec, 2, 2).ok()) << CheckNodes(spec, 2, 2);
  EXPECT_FALSE(CheckNodes(spec, 1, 1).ok()) << "the layout is for two hosts";
  EXPECT_TRUE(CheckNodes(spec, 1, 2).ok());
}

}  // namespace
}  // namespace weft
