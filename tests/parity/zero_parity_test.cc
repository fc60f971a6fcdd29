// ZeRO and hybrid sharding compute the same thing: real processes, both families, and proof that
// the comparison would notice if it were not so. More layouts are drawn in layout_matrix_test.
#include <string>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

// 12 sequences a step: 3 data ranks divide them, but not the tensors.
JobSpec Twelve(JobSpec job) {
  job.training.global_batch_size = 12;
  return job;
}

class AnyZero : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyZero, TrainsAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(Twelve(EnglishJob()), GetParam().layout);
}

TEST_P(AnyZero, TrainsLlamaAsASingleRankDoesWithSgdAndNoClipping) {
  ExpectTrainsAsASingleRank(WithSgdAndNoClipping(Twelve(EnglishLlamaJob())), GetParam().layout);
}

TEST_P(AnyZero, TrainsTheSameBitsTwice) {
  ExpectTheSameBitsTwice(Twelve(EnglishJob()), GetParam().layout);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, AnyZero,
    testing::Values(
        LayoutCase{"zero1_dp3", {.dp = 3, .zero_stage = 1, .micro_batch_size = 2}},
        LayoutCase{"zero1_dp2_pp2", {.dp = 2, .pp = 2, .zero_stage = 1, .micro_batch_size = 2}},
        LayoutCase{"zero2_dp2_tp2", {.dp = 2, .tp = 2, .zero_stage = 2, .micro_batch_size = 2}},
        LayoutCase{
            "zero3_dp3",
            {.dp = 3, .zero_stage = 3, .pp_schedule = ScheduleKind::kGpipe, .micro_batch_size = 2}},
        LayoutCase{"zero3_dp2_tp2", {.dp = 2, .tp = 2, .zero_stage = 3, .micro_batch_size = 3}},
        LayoutCase{"zero3_groups_of_2",
                   {.dp = 4, .zero_stage = 3, .micro_batch_size = 1, .zero_hpz_partition_size = 2}},
        LayoutCase{"zero2_dp2_pp2",
                   {.dp = 2,
                    .pp = 2,
                    .zero_stage = 2,
                    .pp_schedule = ScheduleKind::kZeroBubbleH1,
                    .micro_batch_size = 2,
                    .layers_per_stage = {3, 1}}},
        LayoutCase{"zero3_dp2_pp2",
                   {.dp = 2,
                    .pp = 2,
                    .zero_stage = 3,
                    .micro_batch_size = 1,
                    .layers_per_stage = {1, 3}}}),
    [](const auto& tested) { return NameOf(tested); });

// ---- the comparison bites

class PlantedInZero : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInZero, IsSeenByTheComparison) {
  ExpectSeen(Twelve(EnglishJob()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Parity, PlantedInZero,
    testing::Values(
        BugCase{"part_shifted",
                PlantedBug::kPartShifted,
                {.dp = 3, .zero_stage = 1, .micro_batch_size = 2},
                "gradient blocks.0.attn.q.weight"},
        BugCase{"part_shifted_in_passes",
                PlantedBug::kPartShifted,
                {.dp = 2, .zero_stage = 2, .micro_batch_size = 2},
                "gradient blocks.0.attn.q.weight"},
        BugCase{"not_gathered_after_update",
                PlantedBug::kNotGathered,
                {.dp = 2, .zero_stage = 1, .micro_batch_size = 2},
                "loss of step 3"},
        BugCase{"not_gathered_in_passes",
                PlantedBug::kNotGathered,
                {.dp = 2, .zero_stage = 3, .micro_batch_size = 2},
                "gradient blocks.0.attn.q.weight"},
        BugCase{"not_awaited",
                PlantedBug::kLastReductionNotAwaited,
                {.dp = 2, .micro_batch_size = 2},
                "gradient embed.tokens.weight"},
        BugCase{"not_awaited_before_a_part",
                PlantedBug::kLastReductionNotAwaited,
                {.dp = 3, .zero_stage = 1, .micro_batch_size = 2},
                "loss of step 2"},  // the first gather makes up for it, after the update
        BugCase{
            "not_settled_in_a_pipeline",
            PlantedBug::kLastReductionNotAwaited,
            {.dp = 2, .pp = 2, .zero_stage = 2, .micro_batch_size = 2, .layers_per_stage = {3, 1}},
            "gradient blocks.2.attn.q.weight"},
        BugCase{
            "not_gathered_in_passes_of_a_pipeline",
            PlantedBug::kNotGathered,
            {.dp = 2, .pp = 2, .zero_stage = 3, .micro_batch_size = 2, .layers_per_stage = {3, 1}},
            "gradient blocks.0.attn.q.weight"}),
    [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
