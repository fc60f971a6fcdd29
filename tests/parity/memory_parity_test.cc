// These tests show that what saves memory computes the same thing: recomputed activations to the
// bit, logits in pieces and tokens cut over tp within the bounds of any layout. They run real
// processes, and prove that the comparison would notice if it were not so. Mixtures of them are
// drawn by layout_matrix_test.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

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

// ---- any of them

class MemorySaver : public testing::TestWithParam<LayoutCase> {};

TEST_P(MemorySaver, TrainsAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(EnglishJob(), GetParam().layout);
}

TEST_P(MemorySaver, TrainsLlamaAsASingleRankDoesWithSgdAndNoClipping) {
  ExpectTrainsAsASingleRank(WithSgdAndNoClipping(EnglishLlamaJob()), GetParam().layout);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, MemorySaver,
    testing::Values(LayoutCase{"head_chunks_3", {.micro_batch_size = 4, .head_chunk_tokens = 43}},
                    LayoutCase{"head_chunks_5_tp2_pp2",
                               {.pp = 2, .tp = 2, .micro_batch_size = 2, .head_chunk_tokens = 13}},
                    LayoutCase{"sp_tp2",
                               {.tp = 2, .micro_batch_size = 2, .sequence_parallel = true}},
                    LayoutCase{"sp_tp4_pp2", {.pp = 2, .tp = 4, .sequence_parallel = true}},
                    LayoutCase{"sp_zb_h1",
                               {.pp = 2,
                                .tp = 2,
                                .pp_schedule = kZeroBubble,
                                .micro_batch_size = 2,
                                .sequence_parallel = true}},
                    LayoutCase{"sp_interleaved_full_head_chunks",
                               {.pp = 2,
                                .tp = 2,
                                .pp_schedule = kInterleaved,
                                .micro_batch_size = 2,
                                .recompute = Recompute::kFull,
                                .virtual_stages = 2,
                                .sequence_parallel = true,
                                .head_chunk_tokens = 22}},
                    LayoutCase{"sp_dp2_uneven_selective",
                               {.dp = 2,
                                .pp = 2,
                                .tp = 2,
                                .recompute = Recompute::kSelective,
                                .sequence_parallel = true,
                                .head_chunk_tokens = 16,
                                .layers_per_stage = {1, 3}}}),
    [](const auto& tested) { return NameOf(tested); });

TEST(MemorySavers, TrainTheSameBitsTwice) {
  ExpectTheSameBitsTwice(EnglishJob(), {.pp = 2,
                                        .tp = 2,
                                        .micro_batch_size = 2,
                                        .recompute = Recompute::kFull,
                                        .sequence_parallel = true,
                                        .head_chunk_tokens = 22});
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
