// Context parallelism and packed documents: any split of the sequences computes the same thing, and
// the NumPy models say what that is. Real processes, both families, and proof that the comparison
// would notice if it were not so.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;
constexpr ScheduleKind kInterleaved = ScheduleKind::kInterleaved;
constexpr ScheduleKind kZeroBubble = ScheduleKind::kZeroBubbleH1;

// Documents of a word each, with learned positions counted from their starts.
JobSpec Packed(JobSpec job) {
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.data.reset_position_ids = job.model.family == ModelFamily::kGpt2;
  return job;
}

JobSpec OneKvHead(JobSpec job) {
  job.model.num_kv_heads = 1;
  return job;
}

// ---- the witness

TEST(PackedWitness, AgreesWithOurTenStepsAndEveryFirstGradient) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  std::vector<WitnessCase> cases = {{"gpt2", Packed(EnglishJob())},
                                    {"llama", Packed(EnglishLlamaJob())},
                                    {"positions go on", Packed(EnglishJob())},
                                    {"lines that start with a mark", Packed(EnglishJob())}};
  cases[2].job.data.reset_position_ids = false;
  cases[3].job.data.bos_token_id = '\n';
  cases[3].job.data.eos_token_id.reset();
  for (WitnessCase& c : cases) c.job.training.steps = 10;
  ExpectAgreesWithNumpy(cases);
}

// ---- any layout

struct LayoutCase {
  const char* name;
  int dp, cp, tp, pp;
  ScheduleKind schedule = k1f1b;
  int64_t micro_batch_size = 2;
  int virtual_stages = 1;
};

Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  Layout layout = MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
  layout.cp = c.cp;
  layout.virtual_stages = c.virtual_stages;
  return layout;
}

class AnySplitOfSequences : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnySplitOfSequences, TrainsAsASingleRankDoes) {
  const JobSpec job = EnglishJob();
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnySplitOfSequences, TrainsPackedDocumentsAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(Packed(EnglishJob()));
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnySplitOfSequences, TrainsLlamaAsASingleRankDoes) {
  const JobSpec job = OneKvHead(EnglishLlamaJob());
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

INSTANTIATE_TEST_SUITE_P(Parity, AnySplitOfSequences,
                         testing::Values(LayoutCase{"cp2", 1, 2, 1, 1},
                                         LayoutCase{"cp4", 1, 4, 1, 1},
                                         LayoutCase{"cp2_tp2", 1, 2, 2, 1},
                                         LayoutCase{"cp2_dp2_pp2", 2, 2, 1, 2},
                                         LayoutCase{"cp2_pp2_zb_h1", 1, 2, 1, 2, kZeroBubble, 1},
                                         LayoutCase{"cp2_pp2_v2", 1, 2, 1, 2, kInterleaved, 1, 2}),
                         [](const auto& tested) { return std::string(tested.param.name); });

TEST(ContextParallel, TrainsPackedLlamaAsASingleRankDoes) {
  const JobSpec job = Packed(OneKvHead(EnglishLlamaJob()));
  ExpectTrainsAsASingleRank(job, LayoutOf({"", 1, 2, 2, 1}, job));
}

TEST(ContextParallel, TrainsTheSameBitsTwice) {
  const JobSpec job = Packed(EnglishLlamaJob());
  ExpectTheSameBitsTwice(job, LayoutOf({"", 1, 2, 1, 2}, job));
}

// ---- the comparison bites

struct BugCase {
  const char* name;
  PlantedBug bug;
  int cp, tp;
  const char* seen_in;  // the words of the difference that must be among those found
};

class PlantedInContext : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInContext, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = EnglishLlamaJob();
  ExpectSeen(job, LayoutOf({"", 1, c.cp, c.tp, 1}, job), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInContext,
                         testing::Values(BugCase{"stale_keys", PlantedBug::kStaleKeys, 2, 1,
                                                 "gradient blocks.3.attn.q.weight"},
                                         BugCase{"pieces_swapped", PlantedBug::kPiecesSwapped, 2, 1,
                                                 "gradient blocks.3.attn.q.weight"},
                                         BugCase{"rotary_offset", PlantedBug::kRotaryOffset, 2, 2,
                                                 "gradient blocks.3.attn.q.weight"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
