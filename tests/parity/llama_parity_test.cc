// The llama family: agrees with an independent NumPy model, and any layout computes the same thing.
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

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
// tied and untied head, heads of D / H and others, AdamW, SGD and
// Adafactor.
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
  JobSpec factored = TenSteps();
  factored.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 1e-3};
  return {{"stretched", TenSteps()},
          {"plain", plain},
          {"one kv head", one_kv_head},
          {"adafactor", factored}};
}

TEST(LlamaWitness, PassesItsOwnExamination) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  EXPECT_EQ(std::system("timeout 160 /usr/bin/python3 -B " WEFT_SOURCE_DIR
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

struct LlamaCase {
  const char* name;
  Layout layout;
  int64_t kv_heads;
};

class AnyLayoutOfLlama : public testing::TestWithParam<LlamaCase> {};

TEST_P(AnyLayoutOfLlama, TrainsAsASingleRankDoes) {
  ExpectTrainsAsASingleRank(WithKvHeads(GetParam().kv_heads), GetParam().layout);
}

TEST_P(AnyLayoutOfLlama, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  const JobSpec job = WithSgdAndNoClipping(WithKvHeads(GetParam().kv_heads));
  ExpectTrainsAsASingleRank(job, GetParam().layout);
}

TEST(LlamaLayout, TrainsTheSameBitsTwice) {
  ExpectTheSameBitsTwice(EnglishLlamaJob(), {.dp = 2, .pp = 2, .tp = 2});
}

INSTANTIATE_TEST_SUITE_P(
    Parity, AnyLayoutOfLlama,
    testing::Values(LlamaCase{"dp2", {.dp = 2, .micro_batch_size = 2}, 1},
                    LlamaCase{"tp2", {.tp = 2, .micro_batch_size = 4}, 2},
                    LlamaCase{"pp2", {.pp = 2, .micro_batch_size = 2}, 2},
                    LlamaCase{"tp2_one_kv_head", {.tp = 2, .micro_batch_size = 4}, 1},
                    LlamaCase{"tp4_two_kv_heads", {.tp = 4, .micro_batch_size = 4}, 2},
                    LlamaCase{"dp2_tp2_pp2", {.dp = 2, .pp = 2, .tp = 2}, 2}),
    [](const auto& tested) { return std::string(tested.param.name); });

// ---- the comparison bites

class PlantedInLlama : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInLlama, IsSeenByTheComparison) {
  ExpectSeen(EnglishLlamaJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInLlama,
                         testing::Values(BugCase{"rotary_offset",
                                                 PlantedBug::kRotaryOffset,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.attn.q.weight"},
                                         BugCase{"kv_not_reduced",
                                                 PlantedBug::kKvNotReduced,
                                                 {.tp = 4, .micro_batch_size = 2},
                                                 "gradient blocks.2.attn.k.weight"},
                                         BugCase{"tensor_not_reduced",
                                                 PlantedBug::kTensorNotReduced,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.norm1.weight"}),
                         [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
