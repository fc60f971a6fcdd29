#include "plan/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

constexpr int kAdamw = 2;

StepTime TimeOf(const JobSpec& job, const Layout& layout, int optimizer_states = kAdamw) {
  return EstimateStepTime(job.model, job.cluster, job.batch(), layout, optimizer_states);
}

// Every sound layout of the sample job on four slots.
std::vector<Layout> SmallLayouts(const JobSpec& job) {
  std::vector<Layout> layouts;
  for (const int dp : {1, 2, 4}) {
    for (const int tp : {1, 2, 4}) {
      for (const int pp : {1, 2, 3, 4}) {
        for (const int64_t micro_batch_size : {1, 2, 4}) {
          const Layout layout = {
              .dp = dp,
              .pp = pp,
              .tp = tp,
              .micro_batch_size = micro_batch_size,
              .num_microbatches = job.training.global_batch_size / dp / micro_batch_size};
          if (CheckLayout(job.model, job.cluster, job.batch(), layout).ok()) {
            layouts.push_back(layout);
          }
        }
      }
    }
  }
  return layouts;
}

// A machine on which only one thing takes time.
Cluster FreeCluster() {
  Cluster cluster = SampleCluster();
  cluster.device.peak_flops_per_s.fp32 = 1e300;
  cluster.device.peak_memory_bytes_per_s = 1e300;
  cluster.device.op_overhead_s = 0;
  cluster.intra_node = {.latency_s = 0, .bytes_per_s = 1e300};
  cluster.inter_node = cluster.intra_node;
  return cluster;
}

TEST(StepTime, TermsAddUpToTheTotalAndAreNotNegative) {
  const JobSpec job = SampleJob();
  const std::vector<Layout> layouts = SmallLayouts(job);
  ASSERT_GT(layouts.size(), 20U);
  for (const Layout& layout : layouts) {
    const StepTime time = TimeOf(job, layout);
    double sum_s = 0;
    for (const auto& [name, seconds] : time.terms()) {
      EXPECT_GE(seconds, 0) << name << " of " << LayoutText(layout);
      sum_s += seconds;
    }
    EXPECT_NEAR(sum_s / time.total_s(), 1, 1e-9) << LayoutText(layout);
  }
}

TEST(StepTime, NamesOfTermsStay) {
  std::vector<std::string> names;
  for (const auto& [name, seconds] : StepTime{}.terms()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "overhead", "tensor_comm", "pipeline_comm",
                                             "bubble", "data_comm", "optimizer"}));
}

TEST(StepTime, ComputeIsThreeForwardPassesOfTheWholeBatch) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.device.peak_flops_per_s.fp32 = 1e9;
  const double tokens = 16 * 256;
  const double flops =
      3 * tokens *
      (6 * BlockForwardFlopsPerToken(job.model, 256) + HeadForwardFlopsPerToken(job.model));
  for (const int dp : {1, 2, 4}) {
    const Layout layout = {.dp = dp, .micro_batch_size = 2, .num_microbatches = 8 / dp};
    EXPECT_NEAR(TimeOf(job, layout).total_s(), flops / 1e9 / dp, 1e-9 * flops / 1e9) << dp;
  }
}

TEST(StepTime, FasterMachineIsNeverSlower) {
  const JobSpec job = SampleJob();
  using Change = void (*)(Cluster&);
  const std::pair<std::string, Change> changes[] = {
      {"flops", [](Cluster& c) { c.device.peak_flops_per_s.fp32 *= 2; }},
      {"memory bandwidth", [](Cluster& c) { c.device.peak_memory_bytes_per_s *= 2; }},
      {"host", [](Cluster& c) { c.device.op_overhead_s /= 2; }},
      {"link bandwidth", [](Cluster& c) { c.intra_node.bytes_per_s *= 2; }},
      {"link latency", [](Cluster& c) { c.intra_node.latency_s /= 2; }},
      {"cores", [](Cluster& c) { c.cores_per_node *= 2; }},
  };
  for (const auto& [what, change] : changes) {
    JobSpec faster = job;
    change(faster.cluster);
    bool helped = false;
    for (const Layout& layout : SmallLayouts(job)) {
      const double before_s = TimeOf(job, layout).total_s();
      const double after_s = TimeOf(faster, layout).total_s();
      EXPECT_LE(after_s, before_s) << what << " " << LayoutText(layout);
      helped = helped || after_s < before_s;
    }
    EXPECT_TRUE(helped || what == "cores") << what;
  }
}

TEST(StepTime, WorkersThatShareCoresSlowEachOther) {
  JobSpec job = SampleJob();
  const Layout layout = {.dp = 4, .micro_batch_size = 2, .num_microbatches = 2};
  const StepTime alone = TimeOf(job, layout);
  job.cluster.cores_per_node = 2;  // four workers on two cores
  const StepTime sharing = TimeOf(job, layout);
  EXPECT_NEAR(sharing.compute_s, 2 * alone.compute_s, 1e-12);
  EXPECT_NEAR(sharing.optimizer_s, 2 * alone.optimizer_s, 1e-12);
  EXPECT_EQ(sharing.data_comm_s, alone.data_comm_s);
}

// Ring all-reduce: each rank moves 2(n-1)/n of the tensor. Tensor parallelism without sequence
// parallelism: 2 all-reduces of [N, D] per block and pass (Shoeybi et al., arXiv:1909.08053), one
// after the vocabulary-parallel embedding, one before it is left again at the head, and three of
// [N, 1] for the loss.
TEST(StepTime, TensorParallelVolumeIsFourAllReducesPerBlockAndMicrobatch) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const double tokens = 16 * 256;
  const double wide_bytes = 4 * tokens * 256;
  const double thin_bytes = 4 * tokens;
  for (const int tp : {1, 2, 4}) {
    const Layout layout = {.tp = tp, .micro_batch_size = 2, .num_microbatches = 8};
    const double share = 2.0 * (tp - 1) / tp;
    const double expected_s = share * ((4 * 6 + 2) * wide_bytes + 3 * thin_bytes);
    EXPECT_NEAR(TimeOf(job, layout).tensor_comm_s, expected_s, 1e-9 * expected_s) << tp;
  }
}

TEST(StepTime, DataParallelVolumeIsTheRingOfAllGradients) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const auto gradient_bytes = 4 * static_cast<double>(ParameterCount(job.model));
  for (const int dp : {2, 4}) {
    const Layout layout = {.dp = dp, .micro_batch_size = 4, .num_microbatches = 4 / dp};
    // And three doubles: norm, loss, stop.
    const double expected_s = 2.0 * (dp - 1) / dp * (gradient_bytes + 24);
    EXPECT_NEAR(TimeOf(job, layout).data_comm_s, expected_s, 1e-9 * expected_s) << dp;
  }
}

TEST(StepTime, TiedEmbeddingCostsAReductionAcrossThePipeline) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const Layout layout = {.pp = 2, .micro_batch_size = 2, .num_microbatches = 8};
  const double table_bytes = 4 * 256 * 256;
  EXPECT_NEAR(TimeOf(job, layout).data_comm_s, table_bytes + 24, 1e-6);
  job.model.tied_embeddings = false;
  EXPECT_NEAR(TimeOf(job, layout).data_comm_s, 24, 1e-9);
}

TEST(StepTime, PipelineSendsEachMicrobatchThereAndBack) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const double boundary_bytes = 4 * 2 * 256 * 256;
  const Layout layout = {
      .pp = 3, .schedule = ScheduleKind::kGpipe, .micro_batch_size = 2, .num_microbatches = 8};
  // 8 microbatches at the pace of one border, and once over the other border.
  EXPECT_NEAR(TimeOf(job, layout).pipeline_comm_s, 2 * (8 + 1) * boundary_bytes, 1e-3);
}

TEST(StepTime, OptimizerMovesThirtySixBytesPerParameterForAdamw) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.device.peak_memory_bytes_per_s = 1;
  const Layout layout = {.micro_batch_size = 16, .num_microbatches = 1};
  const auto parameters = static_cast<double>(ParameterCount(job.model));
  EXPECT_NEAR(TimeOf(job, layout, kAdamw).optimizer_s, 36 * parameters, 1e-3);
  EXPECT_NEAR(TimeOf(job, layout, /*optimizer_states=*/0).optimizer_s, 20 * parameters, 1e-3);
}

// Four nodes of two slots: tp lies fastest, so tp=2 stays inside nodes and everything else leaves.
TEST(StepTime, EachGroupIsPricedOnTheLinkItUses) {
  JobSpec job = SampleJob();
  job.cluster.nodes = 4;
  job.cluster.slots_per_node = 2;
  struct Case {
    int dp, tp, pp;
    bool tensor, data, pipeline;  // leaves the node
  };
  const Case cases[] = {
      {1, 2, 1, false, false, false}, {2, 1, 1, false, false, false},
      {1, 1, 2, false, false, false}, {2, 2, 1, false, true, false},
      {1, 2, 2, false, true, true},  // the tied embedding crosses with the pipeline
      {1, 4, 1, true, true, false},   {2, 2, 2, false, true, true},
      {2, 1, 4, false, true, true},
  };
  JobSpec slow_network = job;
  slow_network.cluster.inter_node.bytes_per_s /= 1000;
  for (const Case& c : cases) {
    const Layout layout = {
        .dp = c.dp, .pp = c.pp, .tp = c.tp, .micro_batch_size = 2, .num_microbatches = 8 / c.dp};
    SCOPED_TRACE(LayoutText(layout));
    const StepTime before = TimeOf(job, layout);
    const StepTime after = TimeOf(slow_network, layout);
    EXPECT_EQ(after.tensor_comm_s > before.tensor_comm_s, c.tensor);
    EXPECT_EQ(after.data_comm_s > before.data_comm_s, c.data);
    EXPECT_EQ(after.pipeline_comm_s > before.pipeline_comm_s, c.pipeline);
    EXPECT_EQ(after.compute_s, before.compute_s);
  }
}

double SimulatedSeconds(const JobSpec& job, const Layout& layout) {
  std::vector<std::vector<Action>> stages;
  stages.reserve(static_cast<size_t>(layout.pp));
  for (int stage = 0; stage < layout.pp; ++stage) {
    stages.push_back(StepSchedule(layout, stage, job.model.tied_embeddings));
  }
  const auto simulation =
      Simulate(stages, EstimateActionSeconds(job.model, job.cluster, job.batch(), layout));
  return simulation.ok() ? simulation->makespan_s : NAN;
}

// The closed form that the search uses and the dry run of the very lists agree, though stages
// differ by a block, the embedding and the head, and transfers take time.
TEST(StepTime, PassesTakeWhatTheSimulatorSays) {
  JobSpec job = SampleJob();
  job.training.global_batch_size = 32;
  job.cluster.slots_per_node = 6;
  job.cluster.cores_per_node = 6;  // the dry run knows nothing of shared cores
  for (const ScheduleKind schedule : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward}) {
    for (int pp = 1; pp <= 6; ++pp) {
      for (const int64_t num_microbatches : {1, 2, 4, 8, 32}) {
        const Layout layout = {.pp = pp,
                               .schedule = schedule,
                               .micro_batch_size = 32 / num_microbatches,
                               .num_microbatches = num_microbatches};
        const StepTime time = TimeOf(job, layout);
        const double passes_s = time.total_s() - time.data_comm_s - time.optimizer_s;
        const double simulated_s = SimulatedSeconds(job, layout);
        EXPECT_LE(passes_s, simulated_s * (1 + 1e-9)) << LayoutText(layout);
        EXPECT_GE(passes_s, simulated_s * (1 - 0.002)) << LayoutText(layout);
      }
    }
  }
}

// Four stages that run one after the other on one core lose nothing to the schedule: there is
// always one that can use the core. With a core each, they wait for each other.
TEST(StepTime, WorkersThatShareCoresFillEachOthersBubbles) {
  JobSpec job = SampleJob();
  job.model.num_blocks = 8;
  const Layout layout = {.pp = 4, .micro_batch_size = job.training.global_batch_size};
  job.cluster.slots_per_node = 4;
  job.cluster.cores_per_node = 4;
  const StepTime alone = TimeOf(job, layout);
  job.cluster.cores_per_node = 1;
  const StepTime sharing = TimeOf(job, layout);
  EXPECT_GT(alone.bubble_s, 2.5 * alone.compute_s);
  EXPECT_LT(sharing.bubble_s, 0.1 * sharing.compute_s);
  EXPECT_GE(sharing.total_s(), alone.compute_s + alone.bubble_s);
}

}  // namespace
}  // namespace weft
