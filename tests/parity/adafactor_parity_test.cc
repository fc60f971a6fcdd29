// Adafactor, whose update of an element depends on its whole row, column and tensor, computes the
// same thing however these are cut, and the comparison would notice if it were not so. More layouts
// are drawn in layout_matrix_test.
#include <string>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

// Without a first moment a GPT-2 stands no larger steps: at 1e-3 a rounding grows by half each
// step.
JobSpec WithAdafactor(JobSpec job) {
  job.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 5e-4};
  return job;
}

TEST(Adafactor, TrainsLlamaAsASingleRankDoesWhereTpRanksShareKvHeads) {
  JobSpec job = WithAdafactor(EnglishLlamaJob());
  job.optimizer.scale_parameter = true;
  job.optimizer.lr = 0.05;
  ExpectTrainsAsASingleRank(job, {.tp = 4, .micro_batch_size = 4});
}

TEST(Adafactor, TrainsAsASingleRankDoesInBf16) {
  ExpectTrainsAsASingleRank(
      In(Precision::kBf16, WithAdafactor(EnglishJob())),
      {.dp = 2, .tp = 2, .zero_stage = 2, .micro_batch_size = 2, .sequence_parallel = true});
}

// ---- the comparison bites

class PlantedInAdafactor : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInAdafactor, IsSeenByTheComparison) {
  ExpectSeen(WithAdafactor(EnglishJob()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInAdafactor,
                         testing::Values(BugCase{"factors_not_reduced_over_tp",
                                                 PlantedBug::kFactorsNotReduced,
                                                 {.tp = 2, .micro_batch_size = 4},
                                                 "loss of step 2"},
                                         BugCase{"factors_not_reduced_over_zero",
                                                 PlantedBug::kFactorsNotReduced,
                                                 {.dp = 2, .zero_stage = 1, .micro_batch_size = 4},
                                                 "loss of step 2"},
                                         BugCase{"norms_counted_twice",
                                                 PlantedBug::kVectorsCountedTwice,
                                                 {.tp = 2, .micro_batch_size = 4},
                                                 "loss of step 2"}),
                         [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
