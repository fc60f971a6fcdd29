// The llama family agrees with an independent NumPy model. That any layout computes the same thing
// is layout_matrix_test's.
#include <cstdlib>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/parity/expectations.h"
#include "tests/parity/training.h"
#include "tests/places.h"

namespace weft {
namespace {

// ---- the witness

JobSpec TenStepsOfLlama() {
  JobSpec job = EnglishLlamaJob();
  job.training.steps = 10;
  return job;
}

// Between them: shared and own kv heads, plain and stretched positions, with and without biases,
// tied and untied head, heads of D / H and others, AdamW, SGD and
// Adafactor.
std::vector<WitnessCase> LlamaCases() {
  JobSpec plain = TenStepsOfLlama();
  plain.model.num_kv_heads = 4;
  plain.model.head_dim = 16;
  plain.model.rope_scaling = {};
  plain.model.attention_bias = false;
  plain.model.tied_embeddings = true;
  JobSpec one_kv_head = TenStepsOfLlama();
  one_kv_head.model.num_kv_heads = 1;
  one_kv_head.model.rope_theta = 500000;
  one_kv_head.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0.01};
  one_kv_head.lr_scheduler = {.type = LrSchedule::kConstant};
  JobSpec factored = TenStepsOfLlama();
  factored.optimizer = {.name = OptimizerKind::kAdafactor, .lr = 1e-3};
  std::vector<WitnessCase> cases = {{"stretched", TenStepsOfLlama()},
                                    {"plain", plain},
                                    {"one kv head", one_kv_head},
                                    {"adafactor", factored}};
  for (const char* const family :
       {"qwen2", "qwen3", "starcoder2", "granite", "mistral", "smollm3", "gemma2", "gemma3", "glm4",
        "nemotron", "gpt_neox", "gpt_neox_in_sequence", "olmo2", "olmo3", "cohere2"}) {
    cases.push_back({family, EnglishJobOf(family)});
    cases.back().job.training.steps = 10;
  }
  return cases;
}

TEST(LlamaWitness, PassesItsOwnExamination) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  EXPECT_EQ(std::system(("timeout 160 /usr/bin/python3 -B " +
                         SourcePath("/tests/reference/llama_reference.py") + " --check")
                            .c_str()),
            0);
}

TEST(LlamaWitness, AgreesWithOurTenStepsAndEveryFirstGradient) {
  const absl::Status numpy = HasNumpy();
  if (!numpy.ok()) GTEST_SKIP() << numpy;
  ExpectAgreesWithNumpy(LlamaCases());
}

TEST(LlamaWitness, SaysWhatItSaidBefore) {
  ExpectWhatNumpySaidBefore(TenStepsOfLlama(), SourcePath("/tests/reference/llama_losses.json"));
}

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

class PlantedInQwen3 : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInQwen3, IsSeenByTheComparison) {
  ExpectSeen(EnglishJobOf("qwen3"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Parity, PlantedInQwen3,
    testing::Values(BugCase{"head_norms_not_reduced",
                            PlantedBug::kHeadNormsNotReduced,
                            {.tp = 2, .micro_batch_size = 2},
                            "gradient blocks.0.attn.q_norm.weight"},
                    BugCase{"head_norms_not_reduced_over_copies",
                            PlantedBug::kHeadNormsNotReduced,
                            {.tp = 4, .micro_batch_size = 2, .sequence_parallel = true},
                            "gradient blocks.0.attn.q_norm.weight"}),
    [](const auto& tested) { return NameOf(tested); });

TEST(PlantedInMistral, WindowOffByOneIsSeenByTheComparison) {
  ExpectSeen(EnglishJobOf("mistral"), {"window_off_by_one",
                                       PlantedBug::kWindowOffByOne,
                                       {.tp = 2, .micro_batch_size = 2},
                                       "gradient blocks.3.attn.k.weight"});
}

class PlantedInGemma : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInGemma, IsSeenByTheComparison) {
  const bool is_of_caps = GetParam().bug == PlantedBug::kCapSlopeLeftOut;
  ExpectSeen(is_of_caps ? EnglishJobOf("gemma2") : EnglishJobOf("gemma3"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInGemma,
                         testing::Values(BugCase{"one_rotary_table",
                                                 PlantedBug::kOneRotaryTable,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.2.attn.q.weight"},
                                         BugCase{"cap_slope_left_out",
                                                 PlantedBug::kCapSlopeLeftOut,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient final_norm.weight"}),
                         [](const auto& tested) { return NameOf(tested); });

class PlantedInOlmo : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInOlmo, IsSeenByTheComparison) {
  ExpectSeen(EnglishJobOf("olmo2"), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Parity, PlantedInOlmo,
    testing::Values(BugCase{"kv_head_counted_twice",
                            PlantedBug::kKvHeadCountedTwice,
                            {.tp = 4, .micro_batch_size = 2},
                            "gradient blocks.0.attn.k_norm.weight"},
                    BugCase{"wide_means_not_reduced",
                            PlantedBug::kWideMeansNotReduced,
                            {.tp = 2, .micro_batch_size = 2, .sequence_parallel = true},
                            "gradient blocks.0.attn.q.weight"}),
    [](const auto& tested) { return NameOf(tested); });

TEST(PlantedInGptNeox, BranchLeftOutIsSeenByTheComparison) {
  ExpectSeen(EnglishJobOf("gpt_neox"), {"branch_left_out",
                                        PlantedBug::kBranchLeftOut,
                                        {.tp = 2, .micro_batch_size = 2},
                                        "gradient blocks.3.mlp.down.weight"});
}

}  // namespace
}  // namespace weft
