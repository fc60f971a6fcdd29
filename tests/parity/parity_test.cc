// Proof that the comparison by which any layout is found to compute the same thing
// (layout_matrix_test) would notice if it were not so.
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/parity/expectations.h"

namespace weft {
namespace {

using ::testing::IsEmpty;
using ::testing::Not;

class Planted : public testing::TestWithParam<BugCase> {};

TEST_P(Planted, IsSeenByTheComparison) {
  ExpectSeen(EnglishJob(), GetParam());
}

INSTANTIATE_TEST_SUITE_P(Parity, Planted,
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
                                                 "gradient embed.tokens.weight"}),
                         [](const auto& tested) { return NameOf(tested); });

TEST(Differences, AreFoundInEachPartAndAtItsTolerance) {
  Curve expected;
  expected.losses = {5, 4};
  expected.grad_norms = {1, 2};
  expected.gradients = {{"large", {3000, 4000}}, {"zero", {0, 0}}};
  const auto differ = [&](const auto& change) {
    Curve got = expected;
    change(got);
    return Differences(got, expected);
  };
  EXPECT_THAT(differ([](Curve&) {}), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.losses[1] *= 1 + 0.9e-6; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.losses[1] *= 1 + 1.1e-6; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.losses[1] = std::nan(""); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.losses.pop_back(); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.grad_norms[0] *= 1 - 0.9e-5; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.grad_norms[0] *= 1 - 1.1e-5; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["large"][0] += 5000 * 1.9e-6; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.gradients["large"][0] += 5000 * 2.1e-6; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"][0] = 5 * 1.9e-6; }), IsEmpty());
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"][0] = 5 * 2.1e-6; }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"][0] = std::nan(""); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients.erase("zero"); }), Not(IsEmpty()));
  EXPECT_THAT(differ([](Curve& c) { c.gradients["zero"].pop_back(); }), Not(IsEmpty()));
}

}  // namespace
}  // namespace weft
