// ZeRO and hybrid sharding compute the same thing: real processes, both families, and proof that
// the comparison would notice if it were not so. More layouts are drawn in layout_matrix_test.
#include <string>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind kGpipe = ScheduleKind::kGpipe;
constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;

struct ZeroCase {
  const char* name;
  int zero_stage;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int zero_group = 0;
};

Layout LayoutOf(const ZeroCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
  layout.zero_stage = c.zero_stage;
  layout.zero_group = c.zero_group;
  return layout;
}

// 12 sequences a step: 3 data ranks divide them, but not the tensors.
JobSpec Twelve(JobSpec job) {
  job.training.global_batch_size = 12;
  return job;
}

class AnyZero : public testing::TestWithParam<ZeroCase> {};

TEST_P(AnyZero, TrainsAsASingleRankDoes) {
  const JobSpec job = Twelve(EnglishJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyZero, TrainsLlamaAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(Twelve(EnglishLlamaJob()));
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyZero, TrainsTheSameBitsTwice) {
  const JobSpec job = Twelve(EnglishJob());
  ExpectTheSameBitsTwice(job, LayoutOf(GetParam(), job));
}

INSTANTIATE_TEST_SUITE_P(Parity, AnyZero,
                         testing::Values(ZeroCase{"zero1_dp3", 1, 3, 1, 1, k1f1b, 2},
                                         ZeroCase{"zero1_dp2_pp2", 1, 2, 1, 2, k1f1b, 2},
                                         ZeroCase{"zero2_dp2_tp2", 2, 2, 2, 1, k1f1b, 2},
                                         ZeroCase{"zero3_dp3", 3, 3, 1, 1, kGpipe, 2},
                                         ZeroCase{"zero3_dp2_tp2", 3, 2, 2, 1, k1f1b, 3},
                                         ZeroCase{"zero3_groups_of_2", 3, 4, 1, 1, k1f1b, 1, 2}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- the comparison bites

struct BugCase {
  const char* name;
  PlantedBug bug;
  ZeroCase layout;
  const char* seen_in;  // the words of the difference that must be among those found
};

class PlantedInZero : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInZero, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = Twelve(EnglishJob());
  ExpectSeen(job, LayoutOf(c.layout, job), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInZero,
                         testing::Values(BugCase{"part_shifted",
                                                 PlantedBug::kPartShifted,
                                                 {"", 1, 3, 1, 1, k1f1b, 2},
                                                 "gradient blocks.0.attn.q.weight"},
                                         BugCase{"part_shifted_in_passes",
                                                 PlantedBug::kPartShifted,
                                                 {"", 2, 2, 1, 1, k1f1b, 2},
                                                 "gradient blocks.0.attn.q.weight"},
                                         BugCase{"not_awaited",
                                                 PlantedBug::kLastReductionNotAwaited,
                                                 {"", 0, 2, 1, 1, k1f1b, 2},
                                                 "gradient embed.tokens.weight"},
                                         BugCase{"not_awaited_before_a_part",
                                                 PlantedBug::kLastReductionNotAwaited,
                                                 {"", 1, 3, 1, 1, k1f1b, 2},
                                                 "gradient embed.tokens.weight"},
                                         BugCase{"not_gathered_after_update",
                                                 PlantedBug::kNotGathered,
                                                 {"", 1, 2, 1, 1, k1f1b, 2},
                                                 "loss of step 3"},
                                         BugCase{"not_gathered_in_passes",
                                                 PlantedBug::kNotGathered,
                                                 {"", 3, 2, 1, 1, k1f1b, 2},
                                                 "gradient blocks.0.attn.q.weight"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
