// Proof that the comparison would notice if chunks, backward passes in halves or stages of unequal
// size did not compute the same thing. Schedules are drawn in layout_matrix_test.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

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
