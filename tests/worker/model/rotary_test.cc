#include "worker/model/rotary.h"

#include <cmath>
#include <numbers>

#include "gtest/gtest.h"

namespace weft {
namespace {

Rotation Plain(int64_t width, double theta) {
  return {.theta = theta, .width = width};
}

TEST(RotaryFrequencies, FallGeometricallyFromOneTowardsTheta) {
  const std::vector<double> frequencies = RotaryFrequencies(Plain(8, 10000));
  ASSERT_EQ(frequencies.size(), 4U);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(frequencies[i], expected[i], 1e-15) << i;
}

// Llama 3.1: 8192 positions, factor 8, low 1, high 4. A pair whose whole turn takes less than 2048
// positions is kept, one of more than 8192 is slowed down eightfold, between it is blended.
TEST(RotaryFrequencies, OfAStretchedModelKeepFastTurnsAndSlowDownSlowOnes) {
  Rotation rotation = Plain(128, 500000);
  const std::vector<double> plain = RotaryFrequencies(rotation);
  rotation.scaling = {.factor = 8};
  const std::vector<double> stretched = RotaryFrequencies(rotation);
  int kept = 0;
  int blended = 0;
  int slowed = 0;
  for (size_t i = 0; i < plain.size(); ++i) {
    const double turn = 2 * std::numbers::pi / plain[i];
    if (turn < 2048) {
      EXPECT_EQ(stretched[i], plain[i]) << i;
      ++kept;
    } else if (turn > 8192) {
      EXPECT_DOUBLE_EQ(stretched[i], plain[i] / 8) << i;
      ++slowed;
    } else {
      const double share = (8192 / turn - 1) / 3;
      EXPECT_NEAR(stretched[i] / plain[i], (1 - share) / 8 + share, 1e-14) << i;
      ++blended;
    }
    if (i > 0) {
      EXPECT_LT(stretched[i], stretched[i - 1]);
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(blended, 0);
  EXPECT_GT(slowed, 0);
}

TEST(RotaryTable, HoldsCosinesThenSinesOfEachPosition) {
  const std::vector<float> table = RotaryTable(Plain(4, 10000), {0, 1, 2});
  ASSERT_EQ(table.size(), 12U);
  EXPECT_EQ(std::vector<float>(table.begin(), table.begin() + 4), (std::vector<float>{1, 1, 0, 0}));
  for (const int t : {1, 2}) {
    for (const int i : {0, 1}) {
      const double angle = t * (i == 0 ? 1.0 : 0.01);
      EXPECT_EQ(table[static_cast<size_t>(4 * t + i)], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table[static_cast<size_t>(4 * t + 2 + i)], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(RotaryTable, KeepsItsDigitsAtLatePositions) {
  constexpr int64_t kLate = 100'003;
  const std::vector<float> table = RotaryTable(Plain(2, 10000), {kLate});
  const auto expected = static_cast<double>(std::cos(static_cast<long double>(kLate)));
  EXPECT_NEAR(static_cast<double>(table[0]), expected, 6e-8);
}

}  // namespace
}  // namespace weft
