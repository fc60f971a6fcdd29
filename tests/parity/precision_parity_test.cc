// Fewer bits: near what fp32 computes, and proof that the bound within which any layout computes
// the same thing still sees what is wrong. Layouts in 16 bits are drawn in layout_matrix_test.
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "plan/spec/layout_text.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

// A shell may hold these for other programs: transports, collectives' algorithms, threads, blocks,
// instruction sets.
TEST(Environment, ChangesNoBitOfATraining) {
  const std::map<std::string, std::string> variables = {
      {"OMPI_MCA_coll_tuned_use_dynamic_rules", "1"},
      {"OMPI_MCA_coll_tuned_allreduce_algorithm", "3"},
      {"OMPI_MCA_btl_vader_eager_limit", "512"},
      {"OMP_DYNAMIC", "true"},
      {"OMP_THREAD_LIMIT", "1"},
      {"OPENBLAS_BLOCK_FACTOR", "4"},
      {"OPENBLAS_VERBOSE", "2"},
      {"DNNL_MAX_CPU_ISA", "SSE41"},
      {"ONEDNN_DEFAULT_FPMATH_MODE", "BF16"},
      {"DNNL_VERBOSE", "1"}};
  const ParityJob parity = {.job = In(Precision::kBf16, EnglishJob()),
                            .layout = {.dp = 2, .tp = 2, .micro_batch_size = 2},
                            .ranks = Ranks::kProcesses};
  const Curve without = MustTrain(parity);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
  const Curve with = MustTrain(parity);
  for (const auto& [name, value] : variables) unsetenv(name.c_str());
  ASSERT_EQ(without.loss_hex.size(), 20u);
  EXPECT_EQ(with.loss_hex, without.loss_hex);
  EXPECT_EQ(with.shard_hashes, without.shard_hashes) << "weights and moments after 20 steps";
}

// The layouts that cut what is cast to 8 bits, or carry it out in another order.
TEST(Fp8, TrainsAsASingleRankDoesAndTheSameBitsTwice) {
  for (const Layout& layout :
       {Layout{.dp = 2, .zero_stage = 1, .micro_batch_size = 2},
        Layout{.tp = 2, .micro_batch_size = 4},
        Layout{.dp = 2, .pp = 2, .pp_schedule = ScheduleKind::kZeroBubbleH1}}) {
    SCOPED_TRACE(LayoutText(layout));
    ExpectTrainsAsASingleRank(In(Precision::kFp8, EnglishJob()), layout);
    ExpectTheSameBitsTwice(In(Precision::kFp8, EnglishJob()), layout);
  }
  ExpectSeen(In(Precision::kFp8, EnglishJob()), {"doubled_gradient",
                                                 PlantedBug::kDoubledGradient,
                                                 {.dp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.mlp.down.bias"});
}

// Loss by loss within u = 2^-8, the share of one rounding; both fall by more than a nat.
TEST(Bf16, HasTheCurveOfFp32) {
  for (const JobSpec& job : {EnglishJob(), EnglishLlamaJob()}) {
    const Curve wide = SingleRank(job);
    const Curve narrow = SingleRank(In(Precision::kBf16, job));
    ASSERT_EQ(narrow.losses.size(), wide.losses.size());
    double largest = 0;
    for (size_t step = 0; step < wide.losses.size(); ++step) {
      largest = std::max(largest, std::abs(narrow.losses[step] / wide.losses[step] - 1));
    }
    EXPECT_LT(largest, 0x1p-8);
    EXPECT_GT(largest, 1e-6) << "is it bf16 at all?";
    EXPECT_LT(narrow.losses.back(), narrow.losses.front() - 1);
  }
}

class PlantedInBf16 : public testing::TestWithParam<BugCase> {};

TEST_P(PlantedInBf16, IsSeenByTheComparison) {
  ExpectSeen(In(Precision::kBf16, EnglishJob()), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, PlantedInBf16,
                         testing::Values(BugCase{"doubled_gradient",
                                                 PlantedBug::kDoubledGradient,
                                                 {.dp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.mlp.down.bias"},
                                         BugCase{"norm_not_reduced",
                                                 PlantedBug::kNormNotReduced,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient norm of step 1:"},
                                         BugCase{"tensor_not_reduced",
                                                 PlantedBug::kTensorNotReduced,
                                                 {.tp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.3.norm1.weight"},
                                         BugCase{"microbatch_weight",
                                                 PlantedBug::kMicrobatchWeight,
                                                 {.micro_batch_size = 2},
                                                 "gradient final_norm.weight"},
                                         BugCase{"tied_not_reduced",
                                                 PlantedBug::kTiedNotReduced,
                                                 {.pp = 2, .micro_batch_size = 2},
                                                 "gradient embed.tokens.weight"},
                                         BugCase{"stale_transfer",
                                                 PlantedBug::kStaleTransfer,
                                                 {.pp = 2, .micro_batch_size = 2},
                                                 "gradient blocks.2.mlp.up.weight"}),
                         [](const auto& tested) { return NameOf(tested); });

}  // namespace
}  // namespace weft
