// Any schedule computes the same thing: chunks, backward in halves, stages of any size. Real
// processes, both families, and proof that the comparison would notice if it were not so.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

struct LayoutCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int virtual_stages = 1;
  std::vector<int64_t> stage_blocks = {};
};

Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
  layout.virtual_stages = c.virtual_stages;
  layout.stage_blocks = c.stage_blocks;
  return layout;
}

class AnySchedule : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnySchedule, TrainsAsASingleRankDoes) {
  const JobSpec job = EnglishJob();
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnySchedule, TrainsLlamaAsASingleRankDoes) {
  const JobSpec job = EnglishLlamaJob();
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnySchedule, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(EnglishJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnySchedule, TrainsTheSameBitsTwice) {
  const JobSpec job = EnglishJob();
  ExpectTheSameBitsTwice(job, LayoutOf(GetParam(), job));
}

INSTANTIATE_TEST_SUITE_P(
    Parity, AnySchedule,
    testing::Values(LayoutCase{"interleaved_pp2_v2", 1, 1, 2, kInterleaved, 1, 2},
                    LayoutCase{"interleaved_dp2_pp2_v2", 2, 1, 2, kInterleaved, 2, 2},
                    LayoutCase{"zb_h1_pp2", 1, 1, 2, kZeroBubble, 1},
                    LayoutCase{"zb_h1_pp4", 1, 1, 4, kZeroBubble, 1},
                    LayoutCase{"zb_h1_tp2_pp2", 1, 2, 2, kZeroBubble, 2},
                    LayoutCase{"uneven_1_3", 1, 1, 2, k1f1b, 2, 1, {1, 3}},
                    LayoutCase{"uneven_2_1_1_zb_h1", 1, 1, 3, kZeroBubble, 1, 1, {2, 1, 1}}),
    [](const auto& tested) { return std::string(tested.param.name); });

// ---- the comparison bites

struct BugCase {
  const char* name;
  PlantedBug bug;
  LayoutCase layout;
  const char* seen_in;  // the words of the difference that must be among those found
};

class PlantedInSchedule : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInSchedule, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = EnglishJob();
  ExpectSeen(job, LayoutOf(c.layout, job), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInSchedule,
                         testing::Values(BugCase{"weight_skipped",
                                                 PlantedBug::kWeightSkipped,
                                                 {"", 1, 1, 2, kZeroBubble, 1},
                                                 "gradient blocks.1.mlp.down.weight"},
                                         BugCase{"chunks_swapped",
                                                 PlantedBug::kChunksSwapped,
                                                 {"", 1, 1, 2, kInterleaved, 1, 2},
                                                 "gradient blocks.2.mlp.down.bias"},
                                         BugCase{"stale_transfer",
                                                 PlantedBug::kStaleTransfer,
                                                 {"", 1, 1, 2, kInterleaved, 1, 2},
                                                 "gradient blocks.1.mlp.up.weight"},
                                         BugCase{"stale_transfer_uneven",
                                                 PlantedBug::kStaleTransfer,
                                                 {"", 1, 1, 2, k1f1b, 1, 1, {1, 3}},
                                                 "gradient blocks.1.mlp.up.weight"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
