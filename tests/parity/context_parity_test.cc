// Context parallelism and packed documents: any split of the sequences computes the same thing, and
// the NumPy models say what that is. Proof that the comparison would notice if it were not so; more
// layouts are drawn in layout_matrix_test.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"
#include "tests/parity/training.h"

namespace weft {
namespace {

// Documents of a word each, with learned positions counted from their starts.
JobSpec Packed(JobSpec job) {
  job.data.eos_token_id = ' ';
  job.data.reset_attention_mask = true;
  job.data.reset_position_ids = job.model.architecture == Architecture::kGpt2;
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

TEST(ContextParallel, TrainsPackedLlamaAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(Packed(OneKvHead(EnglishLlamaJob())),
                            {.cp = 2, .tp = 2, .micro_batch_size = 2});
}

// ---- the comparison bites

class PlantedInContext : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInContext, IsSeenByTheComparison) {
  ExpectSeen(EnglishLlamaJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInContext,
                         testing::Values(BugCase{"stale_keys",
                                                 PlantedBug::kStaleKeys,
                                                 {.cp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.attn.q.weight"},
                                         BugCase{"pieces_swapped",
                                                 PlantedBug::kPiecesSwapped,
                                                 {.cp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.attn.q.weight"},
                                         BugCase{"rotary_offset",
                                                 PlantedBug::kRotaryOffset,
                                                 {.cp = 2, .tp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.attn.q.weight"}),
                         [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
