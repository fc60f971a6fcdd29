// Any schedule computes the same thing: chunks, backward in halves, stages of any size. Real
// processes, both families, and proof that the comparison would notice if it were not so.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

class AnySchedule : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnySchedule, TrainsAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(EnglishJob(), GetParam().layout);
}

TEST_P(AnySchedule, TrainsLlamaAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(EnglishLlamaJob(), GetParam().layout);
}

TEST_P(AnySchedule, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  ExpectTrainsAsASingleRank(WithSgdAndNoClipping(EnglishJob()), GetParam().layout);
}

TEST_P(AnySchedule, TrainsTheSameBitsTwice) {
  ExpectTheSameBitsTwice(EnglishJob(), GetParam().layout);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, AnySchedule,
    testing::Values(
        LayoutCase{"interleaved_pp2_v2",
                   {.pp = 2, .pp_schedule = kInterleaved, .virtual_stages = 2}},
        LayoutCase{"interleaved_dp2_pp2_v2",
                   {.dp = 2,
                    .pp = 2,
                    .pp_schedule = kInterleaved,
                    .micro_batch_size = 2,
                    .virtual_stages = 2}},
        LayoutCase{"zb_h1_pp2", {.pp = 2, .pp_schedule = kZeroBubble}},
        LayoutCase{"zb_h1_pp4", {.pp = 4, .pp_schedule = kZeroBubble}},
        LayoutCase{"zb_h1_tp2_pp2",
                   {.pp = 2, .tp = 2, .pp_schedule = kZeroBubble, .micro_batch_size = 2}},
        LayoutCase{"uneven_1_3", {.pp = 2, .micro_batch_size = 2, .layers_per_stage = {1, 3}}},
        LayoutCase{"uneven_2_1_1_zb_h1",
                   {.pp = 3, .pp_schedule = kZeroBubble, .layers_per_stage = {2, 1, 1}}}),
    [](const auto& tested) { return NameOf(tested); });

// ---- the comparison bites

class PlantedInSchedule : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInSchedule, IsSeenByTheComparison) {
  ExpectSeen(EnglishJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Parity, PlantedInSchedule,
    testing::Values(BugCase{"weight_skipped",
                            PlantedBug::kWeightSkipped,
                            {.pp = 2, .pp_schedule = kZeroBubble},
                            "gradient blocks.1.mlp.down.weight"},
                    BugCase{"chunks_swapped",
                            PlantedBug::kChunksSwapped,
                            {.pp = 2, .pp_schedule = kInterleaved, .virtual_stages = 2},
                            "gradient blocks.2.mlp.down.bias"},
                    BugCase{"stale_transfer",
                            PlantedBug::kStaleTransfer,
                            {.pp = 2, .pp_schedule = kInterleaved, .virtual_stages = 2},
                            "gradient blocks.1.mlp.up.weight"},
                    BugCase{"stale_transfer_uneven",
                            PlantedBug::kStaleTransfer,
                            {.pp = 2, .layers_per_stage = {1, 3}},
                            "gradient blocks.1.mlp.up.weight"}),
    [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
