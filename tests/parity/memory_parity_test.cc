// What saves memory computes the same thing: recomputed activations to the bit, logits in pieces
// and tokens cut over tp within the bounds of any layout. Real processes, and proof that the
// comparison would notice if it were not so. Mixtures of them are drawn by layout_matrix_test.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

// ---- recompute

TEST(Recompute, GivesTheSameBitsAsKeepingEverything) {
  for (const JobSpec& job : {EnglishJob(), EnglishLlamaJob()}) {
    Layout layout = MakeLayout(job, 1, 2, 2, k1f1b, 2);
    const Curve keeps = MustTrain({.job = job, .layout = layout});
    ASSERT_EQ(keeps.loss_hex.size(), 20u);
    for (const std::vector<Recompute>& modes :
         {std::vector<Recompute>{Recompute::kFull, Recompute::kFull},
          {Recompute::kSelective, Recompute::kSelective},
          {Recompute::kFull, Recompute::kNone}}) {
      layout.stage_recompute = modes;
      const Curve makes = MustTrain({.job = job, .layout = layout});
      EXPECT_EQ(makes.loss_hex, keeps.loss_hex) << LayoutText(layout);
      EXPECT_EQ(makes.gradients, keeps.gradients) << LayoutText(layout);
      EXPECT_EQ(makes.shard_hashes, keeps.shard_hashes) << LayoutText(layout);
    }
  }
}

// ---- any of them

struct LayoutCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int virtual_stages = 1;
  bool sequence_parallel = false;
  int head_chunks = 1;
  Recompute recompute = Recompute::kNone;
  std::vector<int64_t> stage_blocks = {};
};

Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
  layout.virtual_stages = c.virtual_stages;
  layout.sequence_parallel = c.sequence_parallel;
  layout.head_chunks = c.head_chunks;
  layout.recompute = c.recompute;
  layout.stage_blocks = c.stage_blocks;
  return layout;
}

class MemorySaver : public testing::TestWithParam<LayoutCase> {};

TEST_P(MemorySaver, TrainsAsASingleRankDoes) {
  const JobSpec job = EnglishJob();
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(MemorySaver, TrainsLlamaAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(EnglishLlamaJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

INSTANTIATE_TEST_SUITE_P(
    Parity, MemorySaver,
    testing::Values(LayoutCase{"head_chunks_3", 1, 1, 1, k1f1b, 4, 1, false, 3},
                    LayoutCase{"head_chunks_5_tp2_pp2", 1, 2, 2, k1f1b, 2, 1, false, 5},
                    LayoutCase{"sp_tp2", 1, 2, 1, k1f1b, 2, 1, true},
                    LayoutCase{"sp_tp4_pp2", 1, 4, 2, k1f1b, 1, 1, true},
                    LayoutCase{"sp_zb_h1", 1, 2, 2, kZeroBubble, 2, 1, true},
                    LayoutCase{"sp_interleaved_full_head_chunks", 1, 2, 2, kInterleaved, 2, 2, true,
                               3, Recompute::kFull},
                    LayoutCase{"sp_dp2_uneven_selective",
                               2,
                               2,
                               2,
                               k1f1b,
                               1,
                               1,
                               true,
                               2,
                               Recompute::kSelective,
                               {1, 3}}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST(MemorySavers, TrainTheSameBitsTwice) {
  const JobSpec job = EnglishJob();
  Layout layout = MakeLayout(job, 1, 2, 2, k1f1b, 2);
  layout.sequence_parallel = true;
  layout.head_chunks = 3;
  layout.recompute = Recompute::kFull;
  ExpectTheSameBitsTwice(job, layout);
}

// ---- the comparison bites

struct BugCase {
  const char* name;
  PlantedBug bug;
  LayoutCase layout;
  const char* seen_in;  // the words of the difference that must be among those found
};

class PlantedInMemorySaver : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInMemorySaver, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = EnglishJob();
  ExpectSeen(job, LayoutOf(c.layout, job), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(
    Parity, PlantedInMemorySaver,
    testing::Values(BugCase{"stale_recompute",
                            PlantedBug::kStaleRecompute,
                            {"", 1, 1, 1, k1f1b, 4, 1, false, 1, Recompute::kFull},
                            "gradient blocks.2.attn.q.weight"},
                    BugCase{"stale_selective_recompute",
                            PlantedBug::kStaleRecompute,
                            {"", 1, 1, 1, k1f1b, 4, 1, false, 1, Recompute::kSelective},
                            "gradient blocks.2.attn.q.weight"},
                    BugCase{"head_piece_skipped",
                            PlantedBug::kHeadPieceSkipped,
                            {"", 1, 1, 1, k1f1b, 4, 1, false, 3},
                            "gradient final_norm.weight"},
                    BugCase{"norm_parts_not_reduced",
                            PlantedBug::kNormPartsNotReduced,
                            {"", 1, 2, 1, k1f1b, 4, 1, true},
                            "gradient blocks.0.norm1.weight"},
                    BugCase{"stale_gather",
                            PlantedBug::kStaleGather,
                            {"", 1, 2, 1, k1f1b, 4, 1, true},
                            "gradient blocks.0.attn.q.weight"}),
    [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
