#include "plan/estimate/data_comm.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "plan/block/tensors.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/state_bytes.h"
#include "plan/estimate/step_estimate.h"
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

// A machine on which only one thing takes time.
Cluster FreeCluster() {
  Cluster cluster = SampleCluster();
  cluster.device.peak_flops_per_s = {1e300, 1e300, 1e300};
  cluster.device.peak_memory_bytes_per_s = 1e300;
  cluster.device.op_overhead_s = 0;
  cluster.intra_node = {.latency_s = 0, .bytes_per_s = 1e300};
  cluster.inter_node = cluster.intra_node;
  return cluster;
}

TEST(DataComm, DataParallelVolumeIsTheRingOfAllGradients) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const auto gradient_bytes = 4 * static_cast<double>(ParameterCount(job.model));
  for (const int dp : {2, 4}) {
    const Layout layout = {.dp = dp, .micro_batch_size = 4, .gradient_accumulation_steps = 4 / dp};
    // And three doubles: norm, loss, stop.
    const double expected_s = 2.0 * (dp - 1) / dp * (gradient_bytes + 24);
    EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm), expected_s,
                1e-9 * expected_s)
        << dp;
  }
}

// ZeRO 1 and 2: half an all-reduce of gradients, half of one of parameters; ZeRO 3 gathers the
// parameters twice for each microbatch and reduces its gradients, but for the two blocks that still
// lie in their places where a pass turns back: of 24 gathers, 3 turns save 6. A tied table stays
// whole.
TEST(DataComm, ZeroStagesMoveWhatTheirPaperSays) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const auto bytes = 4 * static_cast<double>(ParameterCount(job.model));
  const double final_norm = 2.0 * static_cast<double>(job.model.hidden_size);
  const double table_bytes =
      4 * (static_cast<double>((job.model.vocab_size + job.model.max_positions) *
                               job.model.hidden_size) +
           final_norm);
  for (const int zero_stage : {1, 2, 3}) {
    const Layout layout = {
        .dp = 4, .zero_stage = zero_stage, .micro_batch_size = 2, .gradient_accumulation_steps = 2};
    // Two microbatches need one reduction, or one each; one gather, or one per pass.
    const double moves[] = {1 + 1, 2 + 1, 2 + 4 - 1};
    EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm),
                0.75 * (moves[zero_stage - 1] * (bytes - table_bytes) + 2 * table_bytes + 48),
                1e-6 * bytes)
        << zero_stage;
  }
}

// A pipeline's stage moves the same; zb_h1 reduces after each half of a backward pass. Up to two
// blocks of a stage stay whole.
TEST(DataComm, ZeroStagesMoveTheSameInEachPassOfAPipeline) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  job.cluster.inter_node = job.cluster.intra_node;
  job.model.tied_embeddings = false;
  job.model.num_blocks = 12;
  const double tokens = 4.0 * 256 * 256;
  const double block = 4 * BlockParameters(Asked(job), Layout{}).all();
  const double positions = 4.0 * static_cast<double>(job.model.max_positions * 256);
  // A ring of two moves half of what each holds; the norm is next to nothing.
  const auto moved = [&](const Layout& layout) {
    return EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm) / 0.5;
  };
  const double first = 2 * (tokens + positions);  // reduced and gathered once
  const int64_t microbatches = 4;
  Layout layout = {.dp = 2, .pp = 3, .gradient_accumulation_steps = microbatches};
  layout.micro_batch_size = job.training.global_batch_size / 2 / microbatches;
  const auto passes = static_cast<double>(microbatches);
  layout.zero_stage = 1;
  EXPECT_NEAR(moved(layout), first + 2 * 4 * block, 1e-4 * block);
  layout.zero_stage = 2;
  EXPECT_NEAR(moved(layout), first + (passes + 1) * 4 * block, 1e-4 * block);
  // Two forward passes go before the first stage's first backward pass: one forward pass begins
  // where a backward pass ended, and two the other way round. Each finds two blocks in place.
  const double kept = (1 + 2) * 2;
  layout.zero_stage = 3;
  EXPECT_NEAR(moved(layout), first + (3 * passes * 4 - kept) * block, 1e-4 * block);
  layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
  EXPECT_NEAR(moved(layout), first + (4 * passes * 4 - kept) * block, 1e-4 * block);
  layout.pp_schedule = ScheduleKind::kGpipe;
  EXPECT_NEAR(moved(layout), first + (3 * passes * 4 - 2) * block, 1e-4 * block);
  layout.pp_schedule = ScheduleKind::kOneForwardOneBackward;
  job.model.num_blocks = 6;
  EXPECT_NEAR(moved(layout), first + 2 * 2 * block, 1e-4 * block);
}

TEST(DataComm, TiedEmbeddingCostsAReductionAcrossThePipeline) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  const Layout layout = {.pp = 2, .micro_batch_size = 2, .gradient_accumulation_steps = 8};
  const double table_bytes = 4 * 256 * 256;
  EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm), table_bytes + 24, 1e-6);
  job.model.tied_embeddings = false;
  EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm), 24, 1e-9);
}

TEST(DataComm, CopiesOfAKvHeadAreSummedBlockByBlock) {
  JobSpec job = SampleJob();
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = 4;
  job.cluster.intra_node = {.latency_s = 0, .bytes_per_s = 1e9};
  const Layout layout = {.tp = 4, .micro_batch_size = 4, .gradient_accumulation_steps = 4};
  const double alone_s = EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm);
  job.model.num_kv_heads = 2;  // each on two ranks: a ring of two moves the gradient once
  const double shared_s = EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm);
  const double bytes = 4.0 * static_cast<double>(job.model.head_dim * job.model.hidden_size);
  EXPECT_NEAR(shared_s - alone_s, 2.0 * static_cast<double>(job.model.num_blocks) * bytes / 1e9,
              1e-9);
}

// The engine gathers weights as products take them, and sums fp32 gradients
// (worker/state/parameters.h).
TEST(DataComm, BytesFollowThePrecision) {
  Question question = Asked(SampleJob());
  question.cluster = FreeCluster();
  question.cluster.intra_node.bytes_per_s = 1;
  const Layout layout = {
      .dp = 4, .zero_stage = 1, .micro_batch_size = 2, .gradient_accumulation_steps = 2};
  const auto parameters = static_cast<double>(ParameterCount(question.model));
  struct Case {
    Precision precision;
    double bytes;  // of a parameter's gradient and weight
  };
  for (const auto& [precision, bytes] :
       {Case{Precision::kFp32, 4 + 4}, Case{Precision::kBf16, 4 + 2}, Case{Precision::kFp16, 4 + 2},
        Case{Precision::kFp8, 4 + 2}}) {
    question.numerics.precision = precision;
    EXPECT_NEAR(EstimateStep(question, layout).of(TimeTerm::kDataComm),
                0.75 * (bytes * parameters + 48), 1e-6 * parameters)
        << WordOf(precision);
  }
  question.engine = *EngineProfileNamed("pytorch-eager");
  for (const auto& [precision, bytes] :
       {Case{Precision::kFp32, 4 + 4}, Case{Precision::kBf16, 2 + 2}}) {
    question.numerics.precision = precision;
    EXPECT_EQ(SummedGradientBytes(question) + GatheredWeightBytes(question), bytes);
  }
}

// Two bytes a gradient travel instead of four; weights as before.
TEST(DataComm, SumsIn16BitsMoveHalfTheBytesAtAnyStageOfZero) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  Question question = Asked(job);
  const auto parameters = static_cast<double>(ParameterCount(question.model));
  for (const int zero_stage : {0, 1, 2, 3}) {
    const Layout layout = {
        .dp = 4, .zero_stage = zero_stage, .micro_batch_size = 2, .gradient_accumulation_steps = 1};
    question.numerics.reduce_dtype = ReduceDtype::kFp32;
    const double wide_s = EstimateStep(question, layout).of(TimeTerm::kDataComm);
    question.numerics.reduce_dtype = ReduceDtype::kBf16;
    const double narrow_s = EstimateStep(question, layout).of(TimeTerm::kDataComm);
    const double ring = zero_stage == 0 ? 1.5 : 0.75;
    EXPECT_NEAR(wide_s - narrow_s, 2 * ring * parameters, 1e-6 * parameters) << zero_stage;
  }
}

// The device moves six bytes for each gradient that is rounded, and for each sum that is widened:
// of every microbatch where passes scatter them, else once.
TEST(DataComm, RoundingTakesTheDevicesMemory) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.model.tied_embeddings = false;
  Question question = Asked(job);
  question.cluster.device.peak_memory_bytes_per_s = 1;
  const auto parameters = static_cast<double>(ParameterCount(question.model));
  const auto extra_s = [&](int zero_stage, int64_t microbatches) {
    const Layout layout = {.dp = 4,
                           .zero_stage = zero_stage,
                           .micro_batch_size = 2,
                           .gradient_accumulation_steps = microbatches};
    const auto total_s = [&](ReduceDtype type) {
      question.numerics.reduce_dtype = type;
      return EstimateStep(question, layout).total_s();
    };
    return total_s(ReduceDtype::kBf16) - total_s(ReduceDtype::kFp32);
  };
  const double rate = MachineOf(question).memory_bytes_per_s;
  const double cut_s = 6 * 1.25 * parameters / rate;
  EXPECT_NEAR(extra_s(0, 1), 6 * 2 * parameters / rate, 1e-3 * cut_s);
  EXPECT_NEAR(extra_s(0, 2), 6 * 2 * parameters / rate, 1e-3 * cut_s);
  EXPECT_NEAR(extra_s(1, 2), cut_s, 1e-3 * cut_s);
  EXPECT_NEAR(extra_s(2, 1), cut_s, 1e-3 * cut_s);
  EXPECT_NEAR(extra_s(2, 2), 2 * cut_s, 1e-3 * cut_s);
  EXPECT_NEAR(extra_s(3, 4), 4 * cut_s, 1e-3 * cut_s);
}

// ZeRO has cut a block's gradients by then: no rank owns more of a head than of the block.
TEST(DataComm, CopiesOfAKvHeadAreSummedByTheirOwners) {
  JobSpec job = SampleJob();
  SetArchitecture(Architecture::kLlama, job.model);
  job.model.num_kv_heads = 1;
  job.cluster = FreeCluster();
  job.cluster.nodes = 64;
  job.cluster.inter_node = {.latency_s = 0, .bytes_per_s = 1e300};
  job.cluster.intra_node.bytes_per_s = 1;
  job.training.global_batch_size = 64;
  Layout layout = {.dp = 64, .tp = 4, .micro_batch_size = 1, .gradient_accumulation_steps = 1};
  const auto sum_s = [&] { return EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm); };
  const double norm_s = 2.0 * 255 / 256 * 24;
  const double head_bytes = 4.0 * static_cast<double>(job.model.head_dim * 256);
  EXPECT_NEAR(sum_s(), 6 * 2 * 2 * 0.75 * head_bytes + norm_s, 1e-3);
  layout.zero_stage = 1;
  const double part_bytes = 4 * BlockParameters(Asked(job), layout).all() / 64;
  EXPECT_LT(part_bytes, head_bytes);
  EXPECT_NEAR(sum_s(), 6 * 2 * 2 * 0.75 * part_bytes + norm_s, 1e-3);
}

// Embedding and head lie in one place: each is gathered for the forward pass and not again.
TEST(DataComm, EndsOfTheNetworkAreGatheredOncePerMicrobatch) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  job.model.tied_embeddings = false;
  const Layout layout = {
      .dp = 4, .zero_stage = 3, .micro_batch_size = 2, .gradient_accumulation_steps = 2};
  const double block = BlockParameters(Asked(job), layout).all();
  const double ends = static_cast<double>(ParameterCount(job.model)) - 6 * block;
  const double moved = 4 * (2 * (2 * ends + 3 * 6 * block) - 6 * block) + 48;
  EXPECT_NEAR(EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm), 0.75 * moved, 1e-6 * moved);
}

// Groups of two that each hold all shards: a shard is summed over the groups once in a step,
// however many microbatches there are; by engines that do not keep the sum apart, in each.
// The first bucket, the embedding's, is waited for; ZeRO 3 gathers within passes.
TEST(DataComm, WeightsOfAnUpdateComeBesideTheNextForwardPass) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  Question question = Asked(job);
  question.cluster.device.backend = BackendKind::kCuda;
  Layout layout = {
      .dp = 4, .zero_stage = 1, .micro_batch_size = 2, .gradient_accumulation_steps = 2};
  const auto saved_s = [&](double forward_s) {
    const DataComm comm(question, MachineOf(question), layout, 0, StageShare(question, layout, 0));
    return comm.EndSeconds(layout, 0, {.forward_s = 0, .backward_s = 0}) -
           comm.EndSeconds(layout, 0, {.forward_s = forward_s, .backward_s = 0});
  };
  const double blocks_s = 0.75 * 4 * 6 * BlockParameters(question, layout).all();
  const double kept = (1 - question.engine.time.overlap_slowdown);
  EXPECT_NEAR(saved_s(1000), kept * 0.9 * 1000, 1e-3);
  EXPECT_NEAR(saved_s(9 * blocks_s), kept * blocks_s, 1e-6 * blocks_s);
  layout.zero_stage = 3;
  EXPECT_EQ(saved_s(9 * blocks_s), 0);
  layout.zero_stage = 1;
  question.cluster.device.backend = BackendKind::kCpu;
  question.cluster.cores_per_node = 1;
  EXPECT_EQ(saved_s(9 * blocks_s), 0) << "no core to spare";
}

TEST(DataComm, ReplicasOfAShardAreSummedOncePerStep) {
  Question question = Asked(SampleJob());
  question.cluster = FreeCluster();
  question.cluster.intra_node.bytes_per_s = 1;
  const double blocks = 4 * 6 * BlockParameters(question, Layout{}).all();
  const auto moved = [&](int64_t microbatches) {
    const Layout layout = {.dp = 4,
                           .zero_stage = 2,
                           .micro_batch_size = 4 / microbatches,
                           .gradient_accumulation_steps = microbatches,
                           .zero_hpz_partition_size = 2};
    return EstimateStep(question, layout).of(TimeTerm::kDataComm);
  };
  // A ring of two moves half; an all-reduce of halves among two, a half in all.
  EXPECT_NEAR(moved(4) - moved(2), 2 * 0.5 * blocks, 1e-6 * blocks);
  question.engine.time.by_buckets = false;
  EXPECT_GT(moved(4) - moved(2), 2 * (0.5 + 0.5) * blocks * (1 - 1e-6));
}

// A collective for each bucket: what starting one takes counts for each.
TEST(DataComm, EveryBucketHasACollectiveOfItsOwn) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.latency_s = 1;
  const auto starts = [&](int zero_stage) {
    const Layout layout = {
        .dp = 2, .zero_stage = zero_stage, .micro_batch_size = 8, .gradient_accumulation_steps = 1};
    return EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm);
  };
  const double norm = 2;
  EXPECT_NEAR(starts(0), 2 * (6 + 1) + norm, 1e-6);
  EXPECT_NEAR(starts(1), (6 + 1) + (6 + 1) + norm, 1e-6);
  // The table stays whole; two of the blocks are still there for the backward pass.
  EXPECT_NEAR(starts(3), 6 + (6 + 6 - 2) + 1 + 1 + norm, 1e-6);
}

Question OnGpus(const JobSpec& job) {
  Question question = Asked(job);
  question.numerics.precision = Precision::kBf16;
  question.cluster.device.peak_flops_per_s.bf16 = 400e12;
  return question;
}

// FSDP: a block is gathered under the block before, so that of a pass that is long enough only the
// first gather, and the last reduction, are waited for; its collectives start one by one.
TEST(DataComm, UnitsOfFsdpMoveUnderTheUnitBefore) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.bytes_per_s = 1;
  Question question = Asked(job);
  question.engine.time = EngineProfileNamed("pytorch-fsdp")->time;
  question.engine.time.overlap_slowdown = 0;
  question.engine.time.collective_start_s = 0;
  question.cluster.device.backend = BackendKind::kCuda;
  const Layout layout = {
      .dp = 4, .zero_stage = 3, .micro_batch_size = 2, .gradient_accumulation_steps = 4};
  const double blocks = 6;
  const double gather_s = 0.75 * 4 * static_cast<double>(ParameterCount(job.model));
  const auto waits = [&](const ActionSeconds& passes) {
    return DataComm(question, MachineOf(question), layout, 0, StageShare(question, layout, 0))
        .PassWaits(layout, 0, passes);
  };
  const ActionSeconds none = waits({.forward_s = 0, .backward_s = 0});
  EXPECT_NEAR(none.forward_s, gather_s, 1e-6 * gather_s);
  EXPECT_NEAR(none.backward_s, (3.0 / 4) * 2 * gather_s, 1e-6 * gather_s);
  const ActionSeconds enough = waits({.forward_s = 9 * gather_s, .backward_s = 9 * gather_s});
  EXPECT_NEAR(enough.forward_s, gather_s / blocks, 1e-6 * gather_s);
  EXPECT_NEAR(enough.backward_s, (3.0 / 4) * 2 * gather_s / blocks, 1e-6 * gather_s);
  question.cluster.intra_node = {.latency_s = 1, .bytes_per_s = 1e300};
  EXPECT_NEAR(waits({.forward_s = 0, .backward_s = 0}).forward_s, blocks * 3, 1e-6);
}

// Sums start inside the last pass that adds to a bucket: of a backward pass in halves that is the
// second one, which hides less.
TEST(DataComm, HalvesOfABackwardPassHideSumsBehindTheSecond) {
  Question question = OnGpus(LargeJob());
  question.cluster.device.memory_bytes = int64_t{1} << 50;
  question.cluster.intra_node.bytes_per_s = 1e9;  // more than passes hide
  Layout layout = {.dp = 8, .pp = 8, .micro_batch_size = 1, .gradient_accumulation_steps = 64};
  const double whole_s = EstimateStep(question, layout).of(TimeTerm::kDataComm);
  layout.pp_schedule = ScheduleKind::kZeroBubbleH1;
  const double halves_s = EstimateStep(question, layout).of(TimeTerm::kDataComm);
  NetworkPasses network;
  const PassCost& block = network.Block(question, layout, Recompute::kNone);
  const double first_half_s = 10 * (block.backward.total_s() - block.weight_gradient_s) +
                              network.Embedding(question, layout).backward.total_s();
  EXPECT_NEAR(halves_s - whole_s, question.engine.time.reduce_window * first_half_s,
              1e-6 * first_half_s);
}

// A tied table's copies are summed after the last pass, and only then their data groups' sum.
TEST(DataComm, NothingHidesTheLastSumsOfATable) {
  Question question = OnGpus(LargeJob());
  question.cluster.intra_node.bytes_per_s = 1e12;  // blocks are hidden
  question.cluster.inter_node = question.cluster.intra_node;
  const Layout layout = {.dp = 8, .pp = 8, .micro_batch_size = 8, .gradient_accumulation_steps = 8};
  const Machine machine = MachineOf(question);
  const PricedGroup data = GroupOf(machine, 8, 1, layout.world_size());
  for (const bool tied : {false, true}) {
    question.model.tied_embeddings = tied;
    const double table_bytes = 4.0 * 128256 * 8192;
    const double sum_s = AllReduceSeconds(machine, data, table_bytes);
    const ActionSeconds passes = {.forward_s = 100, .backward_s = 200};
    const auto end_s = [&](int stage) {
      const StageShare share(question, layout, stage);
      return DataComm(question, machine, layout, stage, share).EndSeconds(layout, stage, passes);
    };
    const double first_s = end_s(0);
    const double last_s = end_s(7);
    EXPECT_GT(first_s, sum_s);
    EXPECT_LT(first_s, 2 * sum_s);
    EXPECT_EQ(last_s > sum_s, tied);
  }
}

// Each stage waits in its passes: the first microbatch waits on its way to the last stage, too, and
// the last one on its way back. The dry run of the schedule says the same.
TEST(DataComm, WaitsInPassesLengthenTheFillOfAPipeline) {
  Question question = OnGpus(LargeJob());
  question.cluster.device.memory_bytes = int64_t{1} << 50;
  question.cluster.inter_node.bytes_per_s = 1e9;
  Layout layout = {.dp = 8, .pp = 8, .micro_batch_size = 1, .gradient_accumulation_steps = 64};
  for (const ScheduleKind schedule : {ScheduleKind::kGpipe, ScheduleKind::kOneForwardOneBackward,
                                      ScheduleKind::kZeroBubbleH1, ScheduleKind::kInterleaved}) {
    layout.pp_schedule = schedule;
    layout.virtual_stages = schedule == ScheduleKind::kInterleaved ? 2 : 1;
    double bubble_s = 0, waits_s = 0;
    for (const int zero_stage : {1, 2, 3}) {
      layout.zero_stage = zero_stage;
      const TermSeconds closed = EstimateStep(question, layout);
      const absl::StatusOr<TermSeconds> replay = ReplayStep(question, layout);
      ASSERT_TRUE(replay.ok()) << replay.status();
      EXPECT_LE(closed.total_s(), replay->total_s() * (1 + 1e-9)) << LayoutText(layout);
      EXPECT_GE(closed.total_s(), replay->total_s() * 0.97) << LayoutText(layout);
      EXPECT_GT(closed.of(TimeTerm::kBubble), bubble_s) << LayoutText(layout);
      EXPECT_GT(closed.of(TimeTerm::kDataComm), waits_s) << LayoutText(layout);
      bubble_s = closed.of(TimeTerm::kBubble);
      waits_s = closed.of(TimeTerm::kDataComm);
    }
  }
}

// Where ranks cut the tokens of a norm, each has seen its own: one sum over tp per norm.
TEST(DataComm, NormsOfCutSequencesAreSummedOverTensorRanks) {
  JobSpec job = SampleJob();
  job.cluster = FreeCluster();
  job.cluster.intra_node.latency_s = 1;
  Layout layout = {.tp = 4, .micro_batch_size = 16, .gradient_accumulation_steps = 1};
  const double whole_s = EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm);
  layout.sequence_parallel = true;
  const double cut_s = EstimateStep(Asked(job), layout).of(TimeTerm::kDataComm);
  EXPECT_NEAR(cut_s - whole_s, 6 * 4 * 2 * 3, 1e-9);  // GPT: weight and bias, a ring of four
}

}  // namespace
}  // namespace weft
