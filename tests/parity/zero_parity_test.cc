// Proof that the comparison would notice if ZeRO and hybrid sharding did not compute the same
// thing. Layouts are drawn in layout_matrix_test.
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
