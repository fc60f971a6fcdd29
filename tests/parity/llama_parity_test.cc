// The llama family: agrees with an independent NumPy model, and any layout computes the same thing.
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/parity/curve.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kGolden[] = WEFT_SOURCE_DIR "/tests/reference/llama_losses.json";
constexpr ScheduleKind kGpipe = ScheduleKind::kGpipe;
constexpr ScheduleKind k1f1b = ScheduleKind::kOneForwardOneBackward;

Curve MustTrain(const ParityJob& parity) {
  auto curve = TrainUnderMpi(parity);
  EXPECT_TRUE(curve.ok()) << curve.status();
  return curve.ok() ? *std::move(curve) : Curve();
}

Curve SingleRank(const JobSpec& job) {
  return MustTrain({.job = job, .layout = MakeLayout(job, 1, 1, 1, kGpipe, 8)});
}

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

struct WitnessCase {
  const char* name;
  JobSpec job;
};

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
  for (const WitnessCase& c : Cases()) {
    const auto witness = TrainInNumpy(c.job);
    ASSERT_TRUE(witness.ok()) << witness.status();
    ASSERT_EQ(witness->losses.size(), 10u);
    ASSERT_EQ(witness->gradients.size(), Tensors(c.job.model).size());
    const Curve ours = MustTrain({.job = c.job, .layout = MakeLayout(c.job, 1, 1, 1, k1f1b, 4)});
    EXPECT_THAT(Differences(ours, *witness), IsEmpty()) << c.name;
  }
}

// As witness_test.cc: the committed numbers stand in where Python lacks NumPy.
TEST(LlamaWitness, SaysWhatItSaidBefore) {
  if (std::getenv("UPDATE_GOLDEN") != nullptr) {
    const auto witness = TrainInNumpy(TenSteps());
    ASSERT_TRUE(witness.ok()) << witness.status();
    std::ofstream(kGolden) << nlohmann::json({{"losses", witness->losses},
                                              {"grad_norms", witness->grad_norms}})
                                  .dump(1)
                           << "\n";
  }
  std::ifstream file(kGolden);
  const auto golden = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(golden.is_object()) << kGolden;
  Curve committed;
  committed.losses = golden.at("losses").get<std::vector<double>>();
  committed.grad_norms = golden.at("grad_norms").get<std::vector<double>>();
  ASSERT_EQ(committed.losses.size(), 10u);
  Curve ours = SingleRank(TenSteps());
  ours.gradients.clear();
  EXPECT_THAT(Differences(ours, committed), IsEmpty());
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
  const Curve single = SingleRank(job);
  ASSERT_EQ(single.losses.size(), 20u);
  ASSERT_LT(single.losses.back(), single.losses.front() - 1) << "so flat a curve proves little";
  const Curve spread = MustTrain({.job = job, .layout = LayoutOf(GetParam(), job)});
  EXPECT_THAT(Differences(spread, single), IsEmpty());
}

// AdamW forgives a gradient that is off by a factor; SGD without clipping does not.
TEST_P(AnyLayoutOfLlama, TrainsAsASingleRankDoesWithSgdAndNoClipping) {
  JobSpec job = WithKvHeads(GetParam().kv_heads);
  job.optimizer = {.name = OptimizerKind::kSgd, .lr = 0.05, .weight_decay = 0};
  job.lr_scheduler = {.type = LrSchedule::kConstant};
  job.training.gradient_clipping = 0;
  const Curve single = SingleRank(job);
  ASSERT_EQ(single.losses.size(), 20u);
  const Curve spread = MustTrain({.job = job, .layout = LayoutOf(GetParam(), job)});
  EXPECT_THAT(Differences(spread, single), IsEmpty());
}

TEST(LlamaLayout, TrainsTheSameBitsTwice) {
  const JobSpec job = EnglishLlamaJob();
  const Layout layout = MakeLayout(job, 2, 2, 2, k1f1b, 1);
  const Curve first = MustTrain({.job = job, .layout = layout});
  const Curve second = MustTrain({.job = job, .layout = layout});
  ASSERT_EQ(first.loss_hex.size(), 20u);
  EXPECT_EQ(first.loss_hex, second.loss_hex);
  EXPECT_EQ(first.gradients, second.gradients);
  EXPECT_EQ(first.shard_hashes, second.shard_hashes) << "weights and moments after 20 steps";
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
  const Curve single = SingleRank(job);
  const Layout layout = MakeLayout(job, 1, c.tp, 1, k1f1b, 2);
  // The wrappers alone change nothing, so what is seen next is the bug and nothing else.
  const Curve without = MustTrain({.job = job, .layout = layout, .wrapped = true});
  ASSERT_THAT(Differences(without, single), IsEmpty());
  const Curve with = MustTrain({.job = job, .layout = layout, .wrapped = true, .bug = c.bug});
  ASSERT_EQ(with.losses.size(), 20u) << "it must be the comparison that fails, not the run";
  const std::vector<std::string> differences = Differences(with, single);
  EXPECT_THAT(differences, Contains(HasSubstr(c.seen_in)));
  EXPECT_THAT(differences, Contains(HasSubstr("loss of step"))) << "the curve shows it, too";
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
