// Layouts that save memory compute the same thing: recomputed activations to the bit, and proof
// that the comparison would notice if logits in pieces or tokens cut over tp did not. Mixtures of
// them are drawn by layout_matrix_test.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

// ---- recompute

TEST(Recompute, GivesTheSameBitsAsKeepingEverything) {
  for (const JobSpec& job : {EnglishJob(), EnglishLlamaJob()}) {
    Layout layout = {.pp = 2, .tp = 2, .micro_batch_size = 2};
    const Curve keeps = MustTrain({.job = job, .layout = layout});
    ASSERT_EQ(keeps.loss_hex.size(), 20u);
    for (const std::vector<Recompute>& modes :
         {std::vector<Recompute>{Recompute::kFull, Recompute::kFull},
          {Recompute::kSelective, Recompute::kSelective},
          {Recompute::kFull, Recompute::kNone}}) {
      layout.recompute_per_stage = modes;
      const Curve makes = MustTrain({.job = job, .layout = layout});
      EXPECT_EQ(makes.loss_hex, keeps.loss_hex) << LayoutText(layout);
      EXPECT_EQ(makes.gradients, keeps.gradients) << LayoutText(layout);
      EXPECT_EQ(makes.shard_hashes, keeps.shard_hashes) << LayoutText(layout);
    }
  }
}

// ---- the comparison bites

class PlantedInMemorySaver : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInMemorySaver, IsSeenByTheComparison) {
  ExpectSeen(EnglishJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Parity, PlantedInMemorySaver,
    testing::Values(BugCase{"stale_recompute",
                            PlantedBug::kStaleRecompute,
                            {.micro_batch_size = 4, .recompute = Recompute::kFull},
                            "gradient blocks.2.attn.q.weight"},
                    BugCase{"stale_selective_recompute",
                            PlantedBug::kStaleRecompute,
                            {.micro_batch_size = 4, .recompute = Recompute::kSelective},
                            "gradient blocks.2.attn.q.weight"},
                    BugCase{"head_piece_skipped",
                            PlantedBug::kHeadPieceSkipped,
                            {.micro_batch_size = 4, .head_chunk_tokens = 43},
                            "gradient final_norm.weight"},
                    BugCase{"norm_parts_not_reduced",
                            PlantedBug::kNormPartsNotReduced,
                            {.tp = 2, .micro_batch_size = 4, .sequence_parallel = true},
                            "gradient blocks.0.norm1.weight"},
                    BugCase{"stale_gather",
                            PlantedBug::kStaleGather,
                            {.tp = 2, .micro_batch_size = 4, .sequence_parallel = true},
                            "gradient blocks.0.attn.q.weight"}),
    [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
