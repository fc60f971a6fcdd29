// A plan that came with a job is checked, and counts on the cluster that it was made for alone.
#include "coordinator/planning.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/keys/cluster_keys.h"
#include "plan/search/search.h"
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

TEST(ClusterFingerprint, TellsAllButThePrice) {
  Cluster cluster = SampleJob().cluster;
  const std::string before = ClusterFingerprint(cluster);
  EXPECT_EQ(before.size(), 16u);
  cluster.price_per_device_hour = 2;
  EXPECT_EQ(ClusterFingerprint(cluster), before);
  cluster.slots_per_node += 1;
  EXPECT_NE(ClusterFingerprint(cluster), before);
}

}  // namespace
}  // namespace weft
