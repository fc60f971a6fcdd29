// Plans over several kinds of devices: what they promise of memory and of the batch, what they
// agree with where the kinds are one, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>

#include "plan/mixed/find_mixed.h"
#include "plan/mixed/fleet_part.h"
#include "plan/mixed/mixed_step.h"
#include "plan/mixed/mixed_text.h"
#include "plan/search/search.h"
#include "plan/spec/layout_rules.h"
#include "tests/plan/sample_jobs.h"

namespace weft {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Nodes of 8 GPUs that are `speed` times as fast as those of LargeJob.
Cluster Gpus(const std::string& name, int nodes, double speed, double memory_gib) {
  Cluster cluster = LargeJob().cluster;
  cluster.name = name;
  cluster.nodes = nodes;
  cluster.device.name = name;
  cluster.device.memory_bytes = static_cast<int64_t>(memory_gib * static_cast<double>(1 << 30));
  cluster.device.peak_flops_per_s = {.fp32 = 40e12 * speed, .bf16 = 400e12 * speed};
  cluster.device.peak_memory_bytes_per_s *= speed;
  return cluster;
}

// A Llama of 32 blocks, 6.7 B parameters.
JobSpec SevenB() {
  JobSpec job = LargeJob();
  job.model.vocab_size = 32000;
  job.model.hidden_size = 4096;
  job.model.num_blocks = 32;
  job.model.num_heads = 32;
  job.model.num_kv_heads = 32;
  job.model.ffn_size = 11008;
  job.training.global_batch_size = 256;
  return job;
}

absl::StatusOr<MixedAnswer> Find(const JobSpec& job, const std::vector<Cluster>& parts) {
  return FindMixedPlan(job, parts);
}

// The best plan of that way; none: without uses.
MixedPlan Of(MixedWay way, const MixedAnswer& answer) {
  if (answer.plan.way == way) return answer.plan;
  for (const MixedLoser& each : answer.losers) {
    if (each.plan.step_s > 0 && each.plan.way == way) return each.plan;
  }
  return {};
}

// Every promise of a plan that its own values show.
void ExpectSound(const JobSpec& job, const std::vector<Cluster>& parts, const MixedPlan& plan) {
  int64_t samples = 0;
  int64_t blocks = 0;
  int devices = 0;
  std::set<int> used;
  for (const PartUse& use : plan.uses) {
    const Cluster& part = parts.at(static_cast<size_t>(use.part));
    EXPECT_TRUE(used.insert(use.part).second);
    EXPECT_LE(use.fullest.total_bytes(), part.device.memory_bytes) << part.name;
    EXPECT_LE(use.devices, part.slots()) << part.name;
    EXPECT_EQ(part.slots_per_node % plan.layout.tp, 0);
    EXPECT_EQ(std::ssize(use.blocks), use.stages);
    EXPECT_GT(*std::min_element(use.blocks.begin(), use.blocks.end()), 0);
    EXPECT_GT(use.busy_share, 0);
    EXPECT_LE(use.busy_share, 1);
    devices += use.devices;
    blocks += std::accumulate(use.blocks.begin(), use.blocks.end(), int64_t{0});
    samples += use.replicas * use.microbatches * plan.layout.micro_batch_size;
  }
  const bool is_pipeline = plan.way == MixedWay::kStages;
  const auto shares = static_cast<int64_t>(plan.uses.size());
  EXPECT_EQ(blocks, (is_pipeline ? 1 : shares) * job.model.num_blocks);
  EXPECT_EQ(samples, (is_pipeline ? shares : 1) * job.training.global_batch_size);
  EXPECT_EQ(devices, plan.layout.world_size());
  EXPECT_GT(plan.step_s, 0);
}

TEST(MixedStep, IsTheStepOfOneKindWhereAllPartsAreAlike) {
  JobSpec job = SevenB();
  job.cluster = Gpus("gpu", 4, 1, 80);
  const Question question = QuestionOf(job);
  FleetPart part(question);
  int compared = 0;
  for (const int zero : {0, 1, 2, 3}) {
    for (const ScheduleKind kind : {ScheduleKind::kOneForwardOneBackward, ScheduleKind::kGpipe,
                                    ScheduleKind::kZeroBubbleH1}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        Layout layout{.dp = 4,
                      .pp = 4,
                      .tp = 2,
                      .zero_stage = zero,
                      .pp_schedule = kind,
                      .micro_batch_size = 2,
                      .gradient_accumulation_steps = 32,
                      .sequence_parallel = true};
        layout.layers_per_stage = {9, 8, 8, 7};
        layout.recompute_per_stage = {recompute, recompute, Recompute::kSelective, recompute};
        if (!CheckLayout(question.model, question.cluster, question.batch, layout).ok()) continue;
        const std::vector<FleetPart*> on(4, &part);
        const double closed_s = EstimateStep(question, layout).total_s();
        EXPECT_NEAR(EstimateMixed(layout, on).total_s / closed_s, 1, 1e-9) << zero;
        const auto replayed = ReplayStep(question, layout);
        const auto mixed = ReplayMixed(layout, on);
        ASSERT_TRUE(replayed.ok() && mixed.ok());
        EXPECT_NEAR(mixed->total_s / replayed->total_s(), 1, 1e-9) << zero;
        ++compared;
      }
    }
  }
  EXPECT_GE(compared, 12);
}

TEST(MixedPlan, KeepsWhatItPromises) {
  const std::vector<std::vector<Cluster>> fleets = {
      {Gpus("new", 4, 1, 80), Gpus("old", 4, 0.4, 40)},
      {Gpus("old", 4, 0.4, 40), Gpus("new", 4, 1, 80)},
      {Gpus("new", 2, 1, 80), Gpus("old", 4, 0.4, 40), Gpus("small", 8, 0.15, 16)},
      {Gpus("fast", 3, 1, 24), Gpus("large", 5, 0.5, 80)}};
  for (const std::vector<Cluster>& parts : fleets) {
    const auto answer = Find(SevenB(), parts);
    ASSERT_TRUE(answer.ok()) << answer.status();
    ExpectSound(SevenB(), parts, answer->plan);
    for (const MixedLoser& loser : answer->losers) {
      if (loser.plan.step_s == 0) {
        EXPECT_THAT(loser.why, testing::AnyOf(HasSubstr("the nearest needs "),
                                              HasSubstr("no numbers of microbatches")))
            << loser.of;
        continue;
      }
      ExpectSound(SevenB(), parts, loser.plan);
      EXPECT_GE(loser.plan.objective_s(), answer->plan.objective_s());
    }
    EXPECT_EQ(answer->alone.size(), parts.size());
  }
}

// More devices of any kind are worth something.
TEST(MixedPlan, IsFasterThanThePartsAlone) {
  const std::vector<Cluster> parts = {Gpus("new", 4, 1, 80), Gpus("old", 4, 0.5, 80)};
  const auto answer = Find(SevenB(), parts);
  ASSERT_TRUE(answer.ok()) << answer.status();
  for (const PartAlone& alone : answer->alone) {
    ASSERT_GT(alone.objective_s, 0) << alone.why;
    EXPECT_LT(answer->plan.objective_s(), alone.objective_s);
  }
}

// The search for several kinds leaves its pricers warm.
TEST(MixedPlan, SaysOfEachPartAloneWhatFindPlanSays) {
  const std::vector<Cluster> parts = {Gpus("new", 4, 1, 80), Gpus("old", 4, 0.5, 20)};
  const auto answer = Find(SevenB(), parts);
  ASSERT_TRUE(answer.ok()) << answer.status();
  ASSERT_EQ(answer->alone.size(), parts.size());
  for (size_t part = 0; part < parts.size(); ++part) {
    JobSpec job = SevenB();
    job.cluster = parts[part];
    const absl::StatusOr<Plan> plan = FindPlan(job, Purpose::kEstimate);
    ASSERT_TRUE(plan.ok()) << plan.status();
    EXPECT_EQ(answer->alone[part].layout, plan->layout);
    EXPECT_EQ(answer->alone[part].objective_s, plan->time.total_s() / plan->goodput);
  }
}

TEST(MixedPlan, GivesTheFasterPartMoreOfTheWork) {
  JobSpec job = SevenB();
  const std::vector<Cluster> parts = {Gpus("new", 2, 1, 80), Gpus("old", 2, 0.5, 80)};
  job.layout.dp = 2;  // so that it is a pipeline through both
  job.layout.pp = 2;
  job.layout.tp = 8;
  const auto pipeline = Find(job, parts);
  ASSERT_TRUE(pipeline.ok()) << pipeline.status();
  const MixedPlan stages = Of(MixedWay::kStages, *pipeline);
  ASSERT_EQ(stages.uses.size(), 2u);
  EXPECT_GT(stages.uses[0].blocks[0], stages.uses[1].blocks[0] * 3 / 2);
  job.layout.dp = 4;
  job.layout.pp = 1;
  const auto replicas = Find(job, parts);
  ASSERT_TRUE(replicas.ok()) << replicas.status();
  ASSERT_EQ(replicas->plan.way, MixedWay::kReplicas);
  EXPECT_GT(replicas->plan.uses[0].microbatches, replicas->plan.uses[1].microbatches * 3 / 2);
}

// All splits of the blocks over a stage on each of two parts, as far as they fit.
TEST(MixedPlan, HasTheBestOfAllSplits) {
  JobSpec job = SevenB();
  const std::vector<Cluster> parts = {Gpus("new", 1, 1, 80), Gpus("old", 1, 0.4, 40)};
  job.layout = {.dp = 1,
                .tp = 8,
                .pp = 2,
                .zero_stage = 0,
                .micro_batch_size = 1,
                .recompute = Recompute::kFull};
  const auto answer = Find(job, parts);
  ASSERT_TRUE(answer.ok()) << answer.status();
  JobSpec on[2] = {job, job};
  std::vector<std::unique_ptr<FleetPart>> priced;
  for (size_t i = 0; i < 2; ++i) {
    on[i].cluster = parts[i];
    priced.push_back(std::make_unique<FleetPart>(QuestionOf(on[i])));
  }
  double best_s = std::numeric_limits<double>::infinity();
  for (const size_t first : {size_t{0}, size_t{1}}) {
    for (int64_t blocks = 1; blocks < 32; ++blocks) {
      Layout layout = answer->plan.layout;
      layout.layers_per_stage = {blocks, 32 - blocks};
      const std::vector<FleetPart*> stages = {priced[first].get(), priced[1 - first].get()};
      bool fits = true;
      for (int stage = 0; stage < 2; ++stage) {
        FleetPart& part = *stages[static_cast<size_t>(stage)];
        fits = fits && part.Fits(layout, part.MemoryOf(layout, stage));
      }
      if (fits) best_s = std::min(best_s, ReplayMixed(layout, stages)->total_s);
    }
  }
  EXPECT_LE(answer->plan.step_s, best_s * 1.001);
}

TEST(MixedPlan, AsksPartsWithoutRoomToComputeMoreAgainOrToHoldFewerBlocks) {
  JobSpec job = SevenB();
  job.layout = {.dp = 1, .tp = 8, .pp = 2, .zero_stage = 0, .micro_batch_size = 1};
  const auto roomy = Find(job, {Gpus("new", 1, 1, 80), Gpus("old", 1, 1, 80)});
  const auto tight = Find(job, {Gpus("new", 1, 1, 80), Gpus("old", 1, 1, 8)});
  ASSERT_TRUE(roomy.ok() && tight.ok()) << tight.status();
  const auto of_old = [](const MixedPlan& plan) {
    return *std::find_if(plan.uses.begin(), plan.uses.end(),
                         [](const PartUse& use) { return use.part == 1; });
  };
  const PartUse with_room = of_old(roomy->plan);
  const PartUse without = of_old(tight->plan);
  EXPECT_TRUE(without.blocks[0] < with_room.blocks[0] || without.recompute > with_room.recompute);
  EXPECT_GT(tight->plan.step_s, roomy->plan.step_s);
}

// Three and two replicas: 3 a + 2 b = 128 for many a and b, and one is near the best of all.
TEST(MixedPlan, MakesUpABatchWhoseReplicasDoNotDivideIt) {
  JobSpec job = SevenB();
  job.training.global_batch_size = 128;
  job.layout = {.tp = 8, .pp = 1, .micro_batch_size = 1};
  const std::vector<Cluster> parts = {Gpus("new", 3, 1, 80), Gpus("old", 2, 0.5, 80)};
  const auto answer = Find(job, parts);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const MixedPlan plan = Of(MixedWay::kReplicas, *answer);
  ASSERT_EQ(plan.uses.size(), 2u);
  ExpectSound(job, parts, plan);
  EXPECT_EQ(plan.uses[0].replicas, 3);
  EXPECT_EQ(plan.uses[1].replicas, 2);
}

TEST(MixedPlan, SaysWhatDoesNotFit) {
  const auto answer = Find(LargeJob(), {Gpus("a", 1, 1, 16), Gpus("b", 1, 1, 16)});
  ASSERT_EQ(answer.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(answer.status().message()),
              AllOf(HasSubstr("nothing fits on several parts together: "),
                    HasSubstr("stages over a, b: the nearest needs ")));
}

TEST(MixedPlan, RefusesPartsThatDoNotGoTogether) {
  const Cluster good = Gpus("good", 2, 1, 80);
  const auto refusal = [&](const std::vector<Cluster>& parts, const JobSpec& job = SevenB()) {
    const auto answer = Find(job, parts);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(answer.status().message());
  };
  EXPECT_THAT(refusal({good}), HasSubstr("parts: 1 were given; use 2 to 4"));
  EXPECT_THAT(refusal({good, good}), HasSubstr("part good: is given twice"));
  Cluster other = Gpus("other", 2, 1, 80);
  other.inter_node = {};
  other.nodes = 1;
  EXPECT_THAT(refusal({good, other}), HasSubstr("part other: has no inter_node"));
  other = Gpus("other", 2, 1, 80);
  other.device.peak_flops_per_s.bf16 = 0;
  JobSpec narrow = SevenB();
  narrow.training.mixed_precision = Precision::kBf16;
  EXPECT_THAT(refusal({good, other}, narrow), HasSubstr("part other: "));
  other = SampleCluster();
  EXPECT_THAT(refusal({good, other}), HasSubstr("part sample-cpu: its slots share cores"));
  JobSpec fixed = SevenB();
  fixed.layout.layers_per_stage = {16, 16};
  EXPECT_THAT(refusal({good, Gpus("b", 2, 1, 80)}, fixed), HasSubstr("layers_per_stage"));
  fixed.layout = {.zero_hpz_partition_size = 2};
  EXPECT_THAT(refusal({good, Gpus("b", 2, 1, 80)}, fixed), HasSubstr("zero_hpz_partition_size"));
  fixed.layout = {.tp = 16};
  EXPECT_THAT(refusal({good, Gpus("b", 2, 1, 80)}, fixed), HasSubstr("leave degrees to"));
}

TEST(MixedText, SaysWhoDoesWhatAndWhatWasBeaten) {
  const std::vector<Cluster> parts = {Gpus("new", 4, 1, 80), Gpus("old", 4, 0.4, 40)};
  const auto answer = Find(SevenB(), parts);
  ASSERT_TRUE(answer.ok()) << answer.status();
  const std::string text = MixedText(SevenB(), parts, *answer);
  EXPECT_THAT(text, AllOf(HasSubstr("64 devices of 2 kinds: "), HasSubstr("\n  new "),
                          HasSubstr("\n  old "), HasSubstr("tokens/s"), HasSubstr("beaten, of "),
                          HasSubstr("  new alone: "), HasSubstr(" slower")));
}

TEST(MixedText, TellsStagesAndBlocksInRuns) {
  PartUse use{.first_stage = 2, .stages = 3, .blocks = {4, 4, 5}};
  EXPECT_EQ(StagesText(use), "2 to 4");
  EXPECT_EQ(BlocksText(use), "2x4, 5");
}

}  // namespace
}  // namespace weft
