#include "plan/estimate/step_estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "plan/block/flops.h"
#include "plan/block/tensors.h"
#include "plan/estimate/rank_parts.h"
#include "plan/memory/memory.h"
#include "plan/spec/layout_rules.h"
#include "plan/spec/layout_text.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

Question Asked(const JobSpec& job) {
  Question question;
  question.model = job.model;
  question.cluster = job.cluster;
  question.batch = job.batch();
  question.engine = WeftProfile();
  return question;
}

double ComputeSeconds(const TermSeconds& time) {
  return time.of(TimeTerm::kMatmul) + time.of(TimeTerm::kAttention) + time.of(TimeTerm::kStreaming);
}

double AttentionForwardSeconds(const Question& question, const Layout& layout) {
  return static_cast<double>(layout.gradient_accumulation_steps * question.model.num_blocks) *
         BlockPass(question, layout, Recompute::kNone).forward.of(TimeTerm::kAttention);
}

// Every sound layout of the sample job on four slots.
std::vector<Layout> SmallLayouts(const JobSpec& job) {
  std::vector<Layout> layouts;
  for (const int dp : {1, 2, 4}) {
    for (const int tp : {1, 2, 4}) {
      for (const int pp : {1, 2, 3, 4}) {
        for (const int64_t micro_batch_size : {1, 2, 4}) {
          const Layout layout = {.dp = dp,
                                 .pp = pp,
                                 .tp = tp,
                                 .micro_batch_size = micro_batch_size,
                                 .gradient_accumulation_steps =
                                     job.training.global_batch_size / dp / micro_batch_size};
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

TEST(StepEstimate, TermsAddUpToTheTotalAndAreNotNegative) {
  const JobSpec job = SampleJob();
  const std::vector<Layout> layouts = SmallLayouts(job);
  ASSERT_GT(layouts.size(), 20U);
  for (const Layout& layout : layouts) {
    const TermSeconds time = EstimateStep(Asked(job), layout);
    double sum_s = 0;
    for (const double term_s : time.seconds) {
      EXPECT_GE(term_s, 0) << LayoutText(layout);
      sum_s += term_s;
    }
    EXPECT_NEAR(sum_s / time.total_s(), 1, 1e-9) << LayoutText(layout);
  }
}

// Each stage's clock tells of the same step, in other parts.
TEST(RankParts, AddUpToTheStepOnEveryStage) {
  JobSpec job = SampleJob();
  job.cluster.cores_per_node = 0;
  int stages = 0;
  for (const Layout& layout : SmallLayouts(job)) {
    const Question question = Asked(job);
    const TermSeconds time = EstimateStep(question, layout);
    for (int stage = 0; stage < layout.pp; ++stage) {
      const PartSeconds parts = RankPartsOf(question, layout, stage, time);
      double sum_s = 0;
      for (const double part_s : parts.seconds) {
        EXPECT_GE(part_s, 0) << LayoutText(layout);
        sum_s += part_s;
      }
      EXPECT_NEAR(sum_s, time.total_s() - time.of(TimeTerm::kStragglers), 1e-9 * sum_s)
          << LayoutText(layout) << " stage " << stage;
      EXPECT_GE(parts.of(StepPart::kTransfers) * (1 + 1e-9), time.of(TimeTerm::kBubble))
          << LayoutText(layout) << " stage " << stage;
      ++stages;
    }
  }
  EXPECT_GT(stages, 40);
}

TEST(RankParts, EveryActionBelongsToOne) {
  EXPECT_EQ(PartOf(Op::kForward), StepPart::kForward);
  for (const Op op : {Op::kBackward, Op::kBackwardInput, Op::kBackwardWeight}) {
    EXPECT_EQ(PartOf(op), StepPart::kBackward);
  }
  for (const Op op :
       {Op::kRecvActivation, Op::kSendActivation, Op::kRecvGradient, Op::kSendGradient}) {
    EXPECT_EQ(PartOf(op), StepPart::kTransfers);
  }
  for (const Op op : {Op::kReduceParts, Op::kReduceTiedEmbedding, Op::kReduceGradients,
                      Op::kAwaitGradients, Op::kReduceNorm}) {
    EXPECT_EQ(PartOf(op), StepPart::kReductions);
  }
  EXPECT_EQ(PartOf(Op::kUpdate), StepPart::kUpdate);
}

TEST(StepEstimate, NamesOfTermsStay) {
  std::vector<std::string> names;
  for (size_t i = 0; i < kTimeTerms; ++i) {
    names.emplace_back(WordOf(static_cast<TimeTerm>(i)));
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"matmul", "attention", "streaming", "overhead", "recompute",
                                      "tensor_comm", "context_comm", "expert_comm", "pipeline_comm",
                                      "bubble", "data_comm", "optimizer", "stragglers"}));
}

TEST(StepEstimate, ComputeIsThreeForwardPassesOfTheWholeBatch) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.device.peak_flops_per_s.fp32 = 1e9;
  const double tokens = 16 * 256;
  const double flops =
      3 * tokens *
      (6 * BlockForwardFlopsPerToken(job.model, 0, 256) + HeadForwardFlopsPerToken(job.model));
  for (const int dp : {1, 2, 4}) {
    const Layout layout = {.dp = dp, .micro_batch_size = 2, .gradient_accumulation_steps = 8 / dp};
    const double total_s = EstimateStep(Asked(job), layout).total_s();
    EXPECT_NEAR(total_s, flops / 1e9 / dp, 1e-9 * flops / 1e9) << dp;
  }
}

TEST(StepEstimate, FasterMachineIsNeverSlower) {
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
      const double before_s = EstimateStep(Asked(job), layout).total_s();
      const double after_s = EstimateStep(Asked(faster), layout).total_s();
      EXPECT_LE(after_s, before_s * (1 + 1e-12)) << what << " " << LayoutText(layout);
      helped = helped || after_s < before_s;
    }
    EXPECT_TRUE(helped || what == "cores") << what;
  }
}

TEST(StepEstimate, WorkersThatShareCoresSlowEachOther) {
  JobSpec job = SampleJob();
  const Layout layout = {.dp = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 2};
  const TermSeconds alone = EstimateStep(Asked(job), layout);
  job.cluster.cores_per_node = 2;  // four workers on two cores
  const TermSeconds sharing = EstimateStep(Asked(job), layout);
  EXPECT_NEAR(ComputeSeconds(sharing), 2 * ComputeSeconds(alone), 1e-12);
  EXPECT_NEAR(sharing.of(TimeTerm::kOptimizer), 2 * alone.of(TimeTerm::kOptimizer), 1e-12);
  EXPECT_EQ(sharing.of(TimeTerm::kDataComm), alone.of(TimeTerm::kDataComm));
}

// Ring all-reduce: each rank moves 2(n-1)/n of the tensor. Tensor parallelism without sequence
// parallelism: 2 all-reduces of [N, D] per block and pass (Shoeybi et al., arXiv:1909.08053), one
// after the vocabulary-parallel embedding, one before it is left again at the head, and three of
// [N, 1] for the loss.
TEST(StepEstimate, TensorParallelVolumeIsFourAllReducesPerBlockAndMicrobatch) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const double tokens = 16 * 256;
  const double wide_bytes = 4 * tokens * 256;
  const double thin_bytes = 4 * tokens;
  for (const int tp : {1, 2, 4}) {
    const Layout layout = {.tp = tp, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
    const double share = 2.0 * (tp - 1) / tp;
    const double expected_s = share * ((4 * 6 + 2) * wide_bytes + 3 * thin_bytes);
    EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kTensorComm), expected_s,
                1e-9 * expected_s)
        << tp;
  }
}

// Gathers and reduce-scatters move half of what all-reduces move; the backward pass gathers the
// inputs of both column-parallel layers again (arXiv:2205.05198, 4.2.2).
TEST(StepEstimate, SequenceParallelBlocksMoveTenHalvesOfAnAllReduce) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const Layout layout = {
      .tp = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 8, .sequence_parallel = true};
  const double wide_bytes = 4 * 2 * 256 * 256;
  const PassCost block = BlockPass(Asked(job), layout, Recompute::kNone);
  EXPECT_NEAR(block.forward.of(TimeTerm::kTensorComm), 4 * 0.75 * wide_bytes, 1e-3);
  EXPECT_NEAR(block.backward.of(TimeTerm::kTensorComm), 6 * 0.75 * wide_bytes, 1e-3);
}

// Keys and values are gathered twice and their gradients scattered once (worker/model/context.h);
// nothing of it waits behind attention, however long that takes. A ring does where attention takes
// long.
TEST(StepEstimate, ContextParallelBlocksOfWeftMoveSixGathersOfKeys) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1e9;
  const Layout layout = {.cp = 4, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const double gather_s = 0.75 * 4 * 2 * 256 * 256 / 1e9;  // [B*T, K*E]
  Question question = Asked(job);
  for (const double flops_per_s : {1e6, 1e18}) {
    question.cluster.device.peak_flops_per_s.fp32 = flops_per_s;
    const PassCost block = BlockPass(question, layout, Recompute::kNone);
    EXPECT_NEAR(block.forward.of(TimeTerm::kContextComm), 2 * gather_s, 1e-9);
    EXPECT_NEAR(block.backward.of(TimeTerm::kContextComm), 4 * gather_s, 1e-9);
  }
  question.engine.time.gathers_keys = false;
  question.cluster.device.peak_flops_per_s.fp32 = 1e6;
  EXPECT_LT(BlockPass(question, layout, Recompute::kNone).forward.of(TimeTerm::kContextComm),
            gather_s / 100);
}

// Where a ring passes keys under attention and tensor-parallel communication hides behind the same
// pass, a second of compute hides a second of one of them.
TEST(StepEstimate, ComputeHidesNoMoreThanItTakes) {
  JobSpec job = LargeJob();
  Question question = Asked(job);
  question.engine = *EngineProfileNamed("megatron");
  const Layout layout = {
      .cp = 2, .tp = 4, .micro_batch_size = 1, .gradient_accumulation_steps = 512};
  for (const double bytes_per_s : {1e9, 3e9, 1e10, 3e10, 1e11, 1e12}) {
    question.cluster.intra_node.bytes_per_s = bytes_per_s;
    question.engine.time.tensor_hidden_backward = 1;
    const TermSeconds hiding = BlockPass(question, layout, Recompute::kNone).backward;
    question.engine.time.tensor_hidden_backward = 0;
    const double tensor_s =
        BlockPass(question, layout, Recompute::kNone).backward.of(TimeTerm::kTensorComm);
    // Gradients travel with keys and values, over one border of two.
    const double ring_s = 2 * (5e-6 + 4.0 * 4096 / 2 * 2 * 2 * 128 / bytes_per_s);
    const double hidden_s =
        tensor_s - hiding.of(TimeTerm::kTensorComm) + ring_s - hiding.of(TimeTerm::kContextComm);
    EXPECT_LE(hidden_s, ComputeSeconds(hiding) * (1 + 1e-9)) << bytes_per_s;
    EXPECT_GT(hidden_s, 0) << bytes_per_s;
  }
}

TEST(StepEstimate, FrozenLayersHaveNoWeightGradientsAndPackedOnesAreMadeWide) {
  JobSpec job = SampleJob();
  const Layout layout = {.micro_batch_size = 4, .gradient_accumulation_steps = 4};
  Question question = Asked(job);
  question.cluster.cores_per_node = 0;
  const double trained_s = EstimateStep(question, layout).of(TimeTerm::kMatmul);
  question.adapters = LowRankAdapters{.rank = 8};
  const TermSeconds wide = EstimateStep(question, layout);
  EXPECT_NEAR(wide.of(TimeTerm::kMatmul) / trained_s, 2.0 / 3, 1e-9);
  question.adapters->frozen = FrozenFormat::kNf4;
  const TermSeconds packed = EstimateStep(question, layout);
  const auto weights = static_cast<double>(job.model.num_blocks * 12 * job.model.hidden_size *
                                           job.model.hidden_size);
  // Four microbatches, each forward and backward.
  EXPECT_NEAR(packed.of(TimeTerm::kStreaming) - wide.of(TimeTerm::kStreaming),
              4 * 2 * 2.5625 * weights / question.cluster.device.StreamBytesPerS(), 1e-9);
}

// Per token: of 36 hidden sizes that GPT-2's forward pass moves 26 are left out, 18 of which are
// not in the sums over tp; of its backward pass GELU's gradient reads 4 instead of moving 12.
TEST(StepEstimate, ProductsOnGpusIn16BitsMoveNothingForBiasResidualAndGelu) {
  JobSpec job = SampleJob();
  job.cluster.device.backend = BackendKind::kCuda;
  Question question = Asked(job);
  question.numerics.precision = Precision::kBf16;
  const auto hidden_sizes_saved = [&](bool backward, const Layout& layout, Recompute recompute) {
    const auto streaming_s = [&](bool fuses) {
      question.engine.time.fused_epilogues = fuses;
      const PassCost cost = BlockPass(question, layout, recompute);
      return (backward ? cost.backward : cost.forward).of(TimeTerm::kStreaming) +
             (backward ? cost.backward : cost.forward).of(TimeTerm::kRecompute);
    };
    const auto elements =
        static_cast<double>(layout.micro_batch_size * job.training.seq_len * job.model.hidden_size);
    return (streaming_s(false) - streaming_s(true)) * question.cluster.device.StreamBytesPerS() /
           (2 * elements);
  };
  const Layout whole = {.micro_batch_size = 4, .gradient_accumulation_steps = 4};
  const Layout cut = {.tp = 2, .micro_batch_size = 4, .gradient_accumulation_steps = 4};
  EXPECT_NEAR(hidden_sizes_saved(false, whole, Recompute::kNone), 26, 1e-6);
  EXPECT_NEAR(hidden_sizes_saved(true, whole, Recompute::kNone), 8, 1e-6);
  EXPECT_NEAR(hidden_sizes_saved(true, whole, Recompute::kSelective), 8, 1e-6) << "GELU alone";
  EXPECT_NEAR(hidden_sizes_saved(false, cut, Recompute::kNone), 18.0 / 2, 1e-6);
  EXPECT_NEAR(hidden_sizes_saved(true, cut, Recompute::kNone), 8.0 / 2, 1e-6);
  SetArchitecture(Architecture::kLlama, job.model);
  SetArchitecture(Architecture::kLlama, question.model);
  EXPECT_NEAR(hidden_sizes_saved(false, whole, Recompute::kNone), 4, 1e-6);
  EXPECT_NEAR(hidden_sizes_saved(true, whole, Recompute::kNone), 0, 1e-6);
  question.numerics.precision = Precision::kFp32;
  EXPECT_EQ(hidden_sizes_saved(false, whole, Recompute::kNone), 0);
  question.numerics.precision = Precision::kBf16;
  question.cluster.device.backend = BackendKind::kCpu;
  EXPECT_EQ(hidden_sizes_saved(false, whole, Recompute::kNone), 0);
}

TEST(StepEstimate, PipelineSendsEachMicrobatchThereAndBack) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const double boundary_bytes = 4 * 2 * 256 * 256;
  const Layout layout = {.pp = 3,
                         .pp_schedule = ScheduleKind::kGpipe,
                         .micro_batch_size = 2,
                         .gradient_accumulation_steps = 8};
  // 8 microbatches at the pace of one border, and once over the other border.
  EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kPipelineComm),
              2 * (8 + 1) * boundary_bytes, 1e-3);
}

// torchtitan keeps every second product.
TEST(BlockPass, SelectiveRecomputeRepeatsAnEnginesShareOfItsProducts) {
  Question question = Asked(SampleJob());
  const Layout layout = {.micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const auto again_s = [&] {
    return BlockPass(question, layout, Recompute::kSelective).backward.of(TimeTerm::kRecompute);
  };
  const double forward_s =
      BlockPass(question, layout, Recompute::kNone).forward.of(TimeTerm::kMatmul);
  const double before_s = again_s();
  question.engine.time.selective_products = 0.5;
  EXPECT_NEAR(again_s() - before_s, forward_s / 2, 1e-9 * forward_s);
}

// Streams wait for each other around a collective, whatever it moves.
TEST(BlockPass, ATensorParallelCollectiveTakesTimeToStart) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  Question question = Asked(job);
  question.cluster.device.backend = BackendKind::kCuda;
  const Layout layout = {.tp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const auto forward_s = [&] {
    return BlockPass(question, layout, Recompute::kNone).forward.of(TimeTerm::kTensorComm);
  };
  const double before_s = forward_s();
  question.engine.time.collective_start_s = 1;
  EXPECT_NEAR(forward_s() - before_s, 2, 1e-6);
}

// arXiv:2104.04473, 4.1: tp ranks of one node hold the same activation.
TEST(Boundary, ScatteredTransfersSendAPartAndGatherItInsideTheNode) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.nodes = 2;
  job.cluster.slots_per_node = 2;
  job.cluster.inter_node.bytes_per_s = 1;
  const double boundary_bytes = 4 * 2 * 256 * 256;
  Layout layout = {.pp = 2, .tp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  Question question = Asked(job);
  EXPECT_NEAR(BoundarySeconds(question, layout), boundary_bytes, 1e-3);
  question.engine.time.scatters_transfers = true;
  EXPECT_NEAR(BoundarySeconds(question, layout), boundary_bytes / 2, 1e-3);
  question.cluster.intra_node.bytes_per_s = 2;
  EXPECT_NEAR(BoundarySeconds(question, layout), boundary_bytes / 2 + boundary_bytes / 4, 1e-3);
  // An activation that is cut by sequence already is sent as it is.
  layout.sequence_parallel = true;
  EXPECT_NEAR(BoundarySeconds(question, layout), boundary_bytes / 2, 1e-3);
}

TEST(Boundary, ChunksHideTransfersButForWhatOutlastsTheirPass) {
  Question question = Asked(SampleJob());
  Layout layout = {.pp = 2,
                   .pp_schedule = ScheduleKind::kInterleaved,
                   .micro_batch_size = 2,
                   .gradient_accumulation_steps = 8,
                   .virtual_stages = 2};
  const double transfer_s = BoundarySeconds(question, layout);
  ASSERT_GT(transfer_s, 0);
  EXPECT_EQ(WaitedBoundarySeconds(question, layout, 1), transfer_s);
  question.engine.time.chunks_hide_transfers = true;
  EXPECT_EQ(WaitedBoundarySeconds(question, layout, 1), 0);
  EXPECT_NEAR(WaitedBoundarySeconds(question, layout, transfer_s / 4), transfer_s * 3 / 4, 1e-12);
  // One chunk has no other to go beside.
  layout.pp_schedule = ScheduleKind::kOneForwardOneBackward;
  layout.virtual_stages = 1;
  EXPECT_EQ(WaitedBoundarySeconds(question, layout, 1), transfer_s);
}

TEST(StepEstimate, OptimizerMovesThirtySixBytesPerParameterForAdamw) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.device.peak_memory_bytes_per_s = 1;
  const Layout layout = {.micro_batch_size = 16, .gradient_accumulation_steps = 1};
  const auto parameters = static_cast<double>(ParameterCount(job.model));
  Question question = Asked(job);
  EXPECT_NEAR(EstimateStep(question, layout).of(TimeTerm::kOptimizer), 36 * parameters, 1e-3);
  question.numerics.optimizer = OptimizerStates::kNone;
  EXPECT_NEAR(EstimateStep(question, layout).of(TimeTerm::kOptimizer), 20 * parameters, 1e-3);
}

// AdamW in fp32 offloads two moments of 4 bytes. Memory is so slow that the link does not count on
// the one machine, and on the other so fast that it does not count itself.
TEST(StepEstimate, OffloadedStatesCrossTheHostLinkBothWaysAtOnce) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  const Layout layout = {.micro_batch_size = 16,
                         .gradient_accumulation_steps = 1,
                         .offload_optimizer = OffloadDevice::kCpu};
  const auto parameters = static_cast<double>(ParameterCount(job.model));
  job.cluster.device.backend = BackendKind::kCuda;
  const double first = std::min(parameters, static_cast<double>(kMostStagedElements));
  EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kOptimizer),
              8 * (parameters + first) / 22e9, 1e-6);
  // A CPU device copies: read and written, there and back.
  job.cluster.device.backend = BackendKind::kCpu;
  job.cluster.device.peak_memory_bytes_per_s = 1;
  EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kOptimizer), (36 + 4 * 8) * parameters,
              1e-3);
}

// Four nodes of two slots: tp lies fastest, so tp=2 stays inside nodes and everything else leaves.
TEST(StepEstimate, EachGroupIsPricedOnTheLinkItUses) {
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
    const Layout layout = {.dp = c.dp,
                           .pp = c.pp,
                           .tp = c.tp,
                           .micro_batch_size = 2,
                           .gradient_accumulation_steps = 8 / c.dp};
    SCOPED_TRACE(LayoutText(layout));
    const TermSeconds before = EstimateStep(Asked(job), layout);
    const TermSeconds after = EstimateStep(Asked(slow_network), layout);
    const auto slower = [&](TimeTerm term) { return after.of(term) > before.of(term); };
    EXPECT_EQ(slower(TimeTerm::kTensorComm), c.tensor);
    EXPECT_EQ(slower(TimeTerm::kDataComm), c.data);
    EXPECT_EQ(slower(TimeTerm::kPipelineComm), c.pipeline);
    EXPECT_EQ(ComputeSeconds(after), ComputeSeconds(before));
  }
}

// The closed form that the search uses and the dry run of the very lists agree, though stages
// differ by a block, the embedding and the head, and transfers take time.
TEST(StepEstimate, ClosedFormIsABoundOfTheReplayFromBelow) {
  JobSpec job = SampleJob();
  job.training.global_batch_size = 32;
  job.cluster.slots_per_node = 6;
  job.cluster.cores_per_node = 6;
  struct Case {
    ScheduleKind schedule;
    int virtual_stages;
    double at_least;  // closed form over replay
  };
  const Case cases[] = {{ScheduleKind::kGpipe, 1, 0.998},
                        {ScheduleKind::kOneForwardOneBackward, 1, 0.998},
                        {ScheduleKind::kZeroBubbleH1, 1, 0.90},
                        {ScheduleKind::kInterleaved, 2, 0.85}};
  int compared = 0;
  for (const Case& c : cases) {
    for (int pp = 1; pp <= 6; ++pp) {
      for (const int64_t num_microbatches : {1, 2, 4, 8, 32}) {
        const Layout layout = {.pp = pp,
                               .pp_schedule = c.schedule,
                               .micro_batch_size = 32 / num_microbatches,
                               .gradient_accumulation_steps = num_microbatches,
                               .virtual_stages = c.virtual_stages};
        if (!CheckLayout(job.model, job.cluster, job.batch(), layout).ok()) continue;
        const absl::StatusOr<TermSeconds> replay = ReplayStep(Asked(job), layout);
        ASSERT_TRUE(replay.ok()) << LayoutText(layout) << ": " << replay.status();
        const double closed_s = EstimateStep(Asked(job), layout).total_s();
        EXPECT_LE(closed_s, replay->total_s() * (1 + 1e-9)) << LayoutText(layout);
        EXPECT_GE(closed_s, replay->total_s() * c.at_least) << LayoutText(layout);
        ++compared;
      }
    }
  }
  EXPECT_GT(compared, 60);
}

// Long steps are replayed in part and continued at the pace of the slowest stage.
TEST(StepEstimate, ReplayOfALongStepContinuesAtASteadyPace) {
  JobSpec job = SampleJob();
  Layout layout = {.pp = 3, .micro_batch_size = 1, .gradient_accumulation_steps = 18};
  const auto total_s = [&] { return ReplayStep(Asked(job), layout)->total_s(); };
  const double at_18_s = total_s();
  layout.gradient_accumulation_steps = 19;
  const double at_19_s = total_s();
  layout.gradient_accumulation_steps = 118;
  EXPECT_NEAR(total_s() / (at_18_s + 100 * (at_19_s - at_18_s)), 1, 0.01);
}

// Four stages that run one after the other on one core lose nothing to the schedule: there is
// always one that can use the core. With a core each, they wait for each other.
TEST(StepEstimate, WorkersThatShareCoresFillEachOthersBubbles) {
  JobSpec job = SampleJob();
  job.model.num_blocks = 8;
  const Layout layout = {.pp = 4, .micro_batch_size = job.training.global_batch_size};
  job.cluster.slots_per_node = 4;
  job.cluster.cores_per_node = 4;
  const TermSeconds alone = EstimateStep(Asked(job), layout);
  job.cluster.cores_per_node = 1;
  const TermSeconds sharing = EstimateStep(Asked(job), layout);
  EXPECT_GT(alone.of(TimeTerm::kBubble), 2.5 * ComputeSeconds(alone));
  EXPECT_LT(sharing.of(TimeTerm::kBubble), 0.1 * ComputeSeconds(sharing));
  EXPECT_GE(sharing.total_s(), ComputeSeconds(alone) + alone.of(TimeTerm::kBubble));
}

// The price of deterministic: true is what the same step takes less without.
TEST(StepEstimate, PricesDeterminismWhereThereIsAChoice) {
  const JobSpec job = LargeJob();
  Question question = Asked(job);
  const Layout spread = {.dp = 8,
                         .pp = 1,
                         .tp = 8,
                         .zero_stage = 1,
                         .micro_batch_size = 1,
                         .gradient_accumulation_steps = 64};
  Layout alone = spread;
  alone.dp = alone.tp = 1;
  const auto price_s = [](const Question& asked, const Layout& layout) {
    return DeterminismSeconds(asked, layout, EstimateStep(asked, layout).total_s());
  };
  EXPECT_EQ(price_s(question, spread), 0) << "not asked";
  const TermSeconds usual = EstimateStep(question, spread);
  question.deterministic = true;
  const TermSeconds ordered = EstimateStep(question, spread);
  EXPECT_DOUBLE_EQ(price_s(question, spread), ordered.total_s() - usual.total_s());
  EXPECT_GT(ordered.of(TimeTerm::kDataComm), usual.of(TimeTerm::kDataComm));
  EXPECT_GT(ordered.of(TimeTerm::kTensorComm), usual.of(TimeTerm::kTensorComm));
  EXPECT_EQ(ordered.of(TimeTerm::kAttention), usual.of(TimeTerm::kAttention)) << "in fp32";
  EXPECT_EQ(price_s(question, alone), 0) << "one rank in fp32";

  question.numerics.precision = Precision::kBf16;
  question.cluster.device.peak_flops_per_s.bf16 = 400e12;
  const double attention_s = EstimateStep(question, alone).of(TimeTerm::kAttention);
  const double backward_s = attention_s - AttentionForwardSeconds(question, alone);
  EXPECT_NEAR(price_s(question, alone),
              backward_s * (1 - question.engine.time.ordered_attention_rate), 1e-6 * attention_s);

  question.cluster.device.backend = BackendKind::kCpu;
  EXPECT_EQ(price_s(question, spread), 0) << "CPUs have no other way";
}

// configs/jobs/quickstart.yaml on configs/clusters/cpu.yaml: 75.5 ms measured on such a machine.
TEST(StepEstimate, QuickstartTakesWhatItWasMeasuredToTake) {
  Question question;
  ModelShape& model = question.model;
  SetArchitecture(Architecture::kGpt2, model);
  model.vocab_size = 256;
  model.hidden_size = 128;
  model.num_blocks = 4;
  model.num_heads = model.num_kv_heads = 4;
  model.head_dim = 32;
  model.ffn_size = 512;
  model.max_positions = 128;
  question.batch = {.global_batch_size = 16, .seq_len = 128};
  question.engine = WeftProfile();
  Cluster& cluster = question.cluster;
  cluster.slots_per_node = 4;
  cluster.cores_per_node = 2;
  cluster.device.peak_flops_per_s.fp32 = 148e9;
  cluster.device.peak_memory_bytes_per_s = 8e9;
  cluster.device.op_overhead_s = 2e-6;
  cluster.intra_node = {.latency_s = 20e-6, .bytes_per_s = 3e9};
  const Layout layout = {.dp = 2, .pp = 2, .micro_batch_size = 8, .gradient_accumulation_steps = 1};
  EXPECT_NEAR(EstimateStep(question, layout).total_s() / 0.0755, 1, 0.07);
}

// weft's blocks: faster products, operands that are cast before each; the head as in bf16.
TEST(BlockPass, InFp8TradesProductsForCasts) {
  Question question = Asked(LargeJob());
  question.cluster.device.peak_flops_per_s = {67e12, 989e12, 1979e12};
  question.cluster.device.matmul_efficiency = {0.75, 0.7, 0.67};
  question.engine.time.fused_epilogues = false;  // casts alone differ
  const Layout layout = {.micro_batch_size = 2, .gradient_accumulation_steps = 1};
  question.numerics.precision = Precision::kBf16;
  const PassCost wide = BlockPass(question, layout, Recompute::kNone);
  const PassCost wide_head = HeadPass(question, layout);
  question.numerics.precision = Precision::kFp8;
  const PassCost narrow = BlockPass(question, layout, Recompute::kNone);
  const double rate = 989 * 0.7 / (1979 * 0.67);
  EXPECT_NEAR(narrow.forward.of(TimeTerm::kMatmul) / wide.forward.of(TimeTerm::kMatmul), rate,
              0.01);
  EXPECT_NEAR(narrow.backward.of(TimeTerm::kMatmul) / wide.backward.of(TimeTerm::kMatmul), rate,
              0.01);
  EXPECT_EQ(narrow.forward.of(TimeTerm::kAttention), wide.forward.of(TimeTerm::kAttention));
  EXPECT_EQ(HeadPass(question, layout).forward.total_s(), wide_head.forward.total_s());

  const auto cast_bytes = [&](const TermSeconds& of, const TermSeconds& in_bf16) {
    return (of.of(TimeTerm::kStreaming) - in_bf16.of(TimeTerm::kStreaming)) *
           question.cluster.device.StreamBytesPerS();
  };
  const ModelShape& model = question.model;
  const auto tokens = static_cast<double>(2 * question.batch.seq_len);
  const auto d = static_cast<double>(model.hidden_size), f = static_cast<double>(model.ffn_size);
  const auto q = static_cast<double>(model.num_heads * model.head_dim);
  const auto k = static_cast<double>(model.num_kv_heads * model.head_dim);
  const double ups = model.architecture == Architecture::kLlama ? 2 : 1;
  const double weights = 2 * d * q + 2 * d * k + (ups + 1) * d * f;
  const double inputs = tokens * (d + q + d + f);  // one for q, k and v, one for gate and up
  const double gradients = tokens * (q + 2 * k + d + ups * f + d);
  const double forward = 5 * inputs;
  EXPECT_NEAR(cast_bytes(narrow.forward, wide.forward) / forward, 1, 1e-6);
  EXPECT_NEAR(cast_bytes(narrow.backward, wide.backward) / (forward + 6 * gradients), 1, 1e-6);

  // Codes of weights: both ways once a step, or each before its product in each microbatch.
  Layout step = {.dp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const auto bytes_of_weights = [&](Recompute recompute) {
    return cast_bytes(CodesOfWeights(question, step, recompute), {}) / weights;
  };
  EXPECT_NEAR(bytes_of_weights(Recompute::kFull), 6, 1e-6);
  step.zero_stage = 3;
  EXPECT_NEAR(bytes_of_weights(Recompute::kNone), 8 * 10, 1e-6);
  EXPECT_NEAR(bytes_of_weights(Recompute::kFull), 8 * 15, 1e-6);

  question.engine.time.fused_epilogues = true;  // of products of 16 bits
  EXPECT_EQ(BlockPass(question, layout, Recompute::kNone).forward.total_s(),
            narrow.forward.total_s());

  question.model.hidden_size += 8;  // none in 8 bits
  const PassCost odd = BlockPass(question, layout, Recompute::kNone);
  question.numerics.precision = Precision::kBf16;
  EXPECT_EQ(odd.forward.total_s(), BlockPass(question, layout, Recompute::kNone).forward.total_s());
}

}  // namespace
}  // namespace weft
