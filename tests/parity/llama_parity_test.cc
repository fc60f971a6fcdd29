// The llama family: agrees with an independent NumPy model, and any layout computes the same thing.
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;

JobSpec WithKvHeads(int64_t kv_heads) {
  JobSpec job = EnglishLlamaJob();
  job.model.num_kv_heads = kv_heads;
  return job;
}

// ---- the witness

JobSpec TenSteps() {
  JobSpec job = EnglishLlamaJob();
  job.training.steps = 10;
  return job;
}

// Between them: shared and own kv heads, plain and stretched positions, with and without biases,
// tied and untied head, heads of D / H and others, AdamW and SGD.
std::vector<WitnessCase> Cases() {
  JobSpec plain = TenSteps();
  plain.model.num_kv_heads = 4;
  plain.model.head_dim = 16;
  plain.model.rope_scaling = {};
  plain.model.attention_bias = false;
  plain.model.tied_embeddings = true;
  JobSpec one_kv_head = TenSteps();
  one_kv_head.model.num_kv_heads = 1;
  one_kv_head.model.rope_theta = 500000;
  one_kv_head.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0.01};
  one_kv_head.lr_scheduler = {.type = LrSchedule::kConstant};
  return {{"stretched", TenSteps()}, {"plain", plain}, {"one kv head", one_kv_head}};
}

TEST(LlamaWitness, PassesItsOwnExamination) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  EXPECT_EQ(std::system("timeout 60 /usr/bin/python3 -B " WEFT_SOURCE_DIR
                        "/tests/reference/llama_reference.py --check"),
            0);
}

TEST(LlamaWitness, AgreesWithOurTenStepsAndEveryFirstGradient) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  ExpectAgreesWithNumpy(Cases());
}

TEST(LlamaWitness, SaysWhatItSaidBefore) {
  ExpectWhatNumpySaidBefore(TenSteps(), WEFT_SOURCE_DIR "/tests/reference/llama_losses.json");
}

// ---- any layout

struct LayoutCase {
  const char* name;
  int dp, tp, pp;
  ScheduleKind schedule;
  int64_t micro_batch_size;
  int64_t kv_heads;
};

Layout LayoutOf(const LayoutCase& c, const JobSpec& job) {
  return MakeLayout(job, c.dp, c.tp, c.pp, c.schedule, c.micro_batch_size);
}

class AnyLayoutOfLlama : public testing::TestWithParam<LayoutCase> {};

TEST_P(AnyLayoutOfLlama, TrainsAsASingleRankDoes) {
  const JobSpec job = WithKvHeads(GetParam().kv_heads);
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST_P(AnyLayoutOfLlama, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(WithKvHeads(GetParam().kv_heads));
  ExpectTrainsAsASingleRank(job, LayoutOf(GetParam(), job));
}

TEST(LlamaLayout, TrainsTheSameBitsTwice) {
  const JobSpec job = EnglishLlamaJob();
  ExpectTheSameBitsTwice(job, MakeLayout(job, 2, 2, 2, k1f1b, 1));
}

INSTANTIATE_TEST_SUITE_P(Parity, AnyLayoutOfLlama,
                         testing::Values(LayoutCase{"dp2", 2, 1, 1, k1f1b, 2, 1},
                                         LayoutCase{"tp2", 1, 2, 1, k1f1b, 4, 2},
                                         LayoutCase{"pp2", 1, 1, 2, k1f1b, 2, 2},
                                         LayoutCase{"tp2_one_kv_head", 1, 2, 1, k1f1b, 4, 1},
                                         LayoutCase{"tp4_two_kv_heads", 1, 4, 1, k1f1b, 4, 2},
                                         LayoutCase{"dp2_tp2_pp2", 2, 2, 2, k1f1b, 1, 2}),
                         [](const auto& tested) { return std::string(tested.param.name); });

// ---- the comparison bites

struct BugCase {
  const char* name;
  PlantedBug bug;
  int tp;
  int64_t kv_heads;
  const char* seen_in;  // the words of the difference that must be among those found
};

class PlantedInLlama : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInLlama, IsSeenByTheComparison) {
  const BugCase& c = GetParam();
  const JobSpec job = WithKvHeads(c.kv_heads);
  ExpectSeen(job, MakeLayout(job, 1, c.tp, 1, k1f1b, 2), c.bug, c.seen_in);
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInLlama,
                         testing::Values(BugCase{"rotary_offset", PlantedBug::kRotaryOffset, 2, 2,
                                                 "gradient blocks.3.attn.q.weight"},
                                         BugCase{"kv_not_reduced", PlantedBug::kKvNotReduced, 4, 2,
                                                 "gradient blocks.2.attn.k.weight"},
                                         BugCase{"tensor_not_reduced",
                                                 PlantedBug::kTensorNotReduced, 2, 2,
                                                 "gradient blocks.3.norm1.weight"}),
                         [](const auto& tested) { return std::string(tested.param.name); });

}  // namespace
}  // namespace weft
