#include "worker/model/sampling.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "worker/state/initial_weights.h"

namespace weft {
namespace {

constexpr int kDraws = 20000;

std::vector<int> Counts(const std::vector<float>& logits, const SamplingOptions& options) {
  std::vector<int> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) ++counts[static_cast<size_t>(NextToken(logits, options, i))];
  return counts;
}

// Within 5 standard deviations of a share of the draws.
void ExpectShare(int count, double share) {
  EXPECT_NEAR(count, share * kDraws, 5 * std::sqrt(share * (1 - share) * kDraws) + 1e-9);
}

TEST(NextToken, DrawsInProportionToTheSoftmax) {
  const std::vector<float> logits = {std::log(0.5F), std::log(0.3F), std::log(0.15F),
                                     std::log(0.05F)};
  const std::vector<int> counts = Counts(logits, {});
  ExpectShare(counts[0], 0.5);
  ExpectShare(counts[1], 0.3);
  ExpectShare(counts[2], 0.15);
  ExpectShare(counts[3], 0.05);
  // Half the temperature squares the odds.
  const double total = 0.25 + 0.09 + 0.0225 + 0.0025;
  const std::vector<int> cold = Counts(logits, {.temperature = 0.5});
  ExpectShare(cold[0], 0.25 / total);
  ExpectShare(cold[3], 0.0025 / total);
}

TEST(NextToken, CutsToTheLikeliest) {
  const std::vector<float> logits = {std::log(0.05F), std::log(0.5F), std::log(0.15F),
                                     std::log(0.3F)};
  const std::vector<int> two = Counts(logits, {.top_k = 2});
  EXPECT_EQ(two[0] + two[2], 0);
  ExpectShare(two[1], 0.5 / 0.8);
  // 0.5 is not 0.6 yet, 0.5 + 0.3 is; exactly 0.5 needs one token alone.
  const std::vector<int> most = Counts(logits, {.top_p = 0.6});
  EXPECT_EQ(most[0] + most[2], 0);
  ExpectShare(most[3], 0.3 / 0.8);
  EXPECT_EQ(Counts(logits, {.top_p = 0.4})[1], kDraws);
  EXPECT_EQ(Counts(logits, {.top_k = 1})[1], kDraws);
  EXPECT_EQ(Counts(logits, {.top_k = 100}), Counts(logits, {}));
  // The first of the two that top_k leaves has more than 0.6 of their probability.
  EXPECT_EQ(Counts(logits, {.top_k = 2, .top_p = 0.6})[1], kDraws);
}

TEST(NextToken, IsTheLikeliestWithoutTemperatureAndTheFirstOfEquals) {
  EXPECT_EQ(NextToken(std::vector<float>{1, 3, 3, -7}, {.temperature = 0}, 5), 1);
  EXPECT_EQ(NextToken(std::vector<float>{2}, {}, 0), 0);
  // Nothing overflows: far apart, and colder than any double can say.
  EXPECT_EQ(NextToken(std::vector<float>{-3e38F, 3e38F}, {.temperature = 1e-300}, 0), 1);
}

TEST(NextToken, DependsOnSeedAndIndexAlone) {
  const std::vector<float> logits(1000, 0.0F);
  std::set<int32_t> drawn;
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(NextToken(logits, {.seed = 7}, i), NextToken(logits, {.seed = 7}, i));
    drawn.insert(NextToken(logits, {.seed = 7}, i));
  }
  EXPECT_GT(drawn.size(), 10u);
  EXPECT_NE(NextToken(logits, {.seed = 7}, 0), NextToken(logits, {.seed = 8}, 0));
  // The high halves of seed and index count too.
  EXPECT_NE(NextToken(logits, {.seed = 7}, 0),
            NextToken(logits, {.seed = 7 + (uint64_t{1} << 32)}, 0));
  EXPECT_NE(NextToken(logits, {.seed = 7}, 0), NextToken(logits, {.seed = 7}, int64_t{1} << 32));
  // The ids of equal logits are in order, so the number drawn can be read off.
  const auto words = Philox({3, 0, 0, 0}, {7, 0});
  EXPECT_EQ(NextToken(logits, {.seed = 7}, 3),
            static_cast<int32_t>(static_cast<double>(words[0]) / 4294967296.0 * 1000));
}

TEST(NextToken, RefusesLogitsThatAreNotFinite) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(NextToken(std::vector<float>{0, bad, 1}, {}, 0), -1);
    EXPECT_EQ(NextToken(std::vector<float>{0, bad, 1}, {.temperature = 0}, 0), -1);
  }
}

}  // namespace
}  // namespace weft
