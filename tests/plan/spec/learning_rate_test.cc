#include "plan/spec/learning_rate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace weft {
namespace {

struct Case {
  LrSchedule type;
  int64_t warmup, decay_steps, step;
  double expected;
};

// Peak 1, min_lr 0.1, training.steps 100. Expected values by hand.
TEST(LearningRate, FollowsItsTable) {
  const Case cases[] = {
      {LrSchedule::kConstant, 10, 0, 1, 0.1},
      {LrSchedule::kConstant, 10, 0, 10, 1},
      {LrSchedule::kConstant, 10, 0, 99, 1},
      {LrSchedule::kConstant, 0, 0, 1, 1},
      {LrSchedule::kLinear, 0, 0, 50, 0.55},
      {LrSchedule::kLinear, 0, 0, 100, 0.1},
      {LrSchedule::kLinear, 20, 0, 60, 0.55},
      {LrSchedule::kLinear, 20, 60, 40, 0.55},
      {LrSchedule::kLinear, 20, 60, 60, 0.1},
      {LrSchedule::kLinear, 20, 60, 100, 0.1},
      {LrSchedule::kCosine, 0, 0, 50, 0.55},
      {LrSchedule::kCosine, 0, 0, 25, 0.1 + 0.45 * (1 + std::sqrt(0.5))},
      {LrSchedule::kCosine, 0, 0, 100, 0.1},
      {LrSchedule::kCosine, 10, 0, 5, 0.5},
      {LrSchedule::kCosine, 10, 50, 30, 0.55},
      {LrSchedule::kCosine, 10, 50, 77, 0.1},
      {LrSchedule::kCosine, 30, 20, 30, 1},  // the decay would end within the warmup
      {LrSchedule::kCosine, 30, 20, 31, 0.1},
  };
  for (const Case& c : cases) {
    const LrSchedulerSpec spec{
        .type = c.type, .warmup_steps = c.warmup, .decay_steps = c.decay_steps, .min_lr = 0.1};
    EXPECT_NEAR(LearningRate(spec, 1, 100, c.step), c.expected, 1e-12)
        << WordOf(c.type) << " warmup " << c.warmup << " decay " << c.decay_steps << " step "
        << c.step;
  }
}

TEST(LearningRate, RisesFromWhereTheWarmupBegins) {
  const LrSchedulerSpec spec{.warmup_steps = 10, .warmup_min_lr = 0.2};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 100, 1), 0.28);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 100, 5), 0.6);
  EXPECT_EQ(LearningRate(spec, 1, 100, 10), 1);
}

TEST(LearningRate, IsZeroFromTheStepThatIsNamedAndNeverBefore) {
  for (const LrSchedule type : {LrSchedule::kConstant, LrSchedule::kLinear, LrSchedule::kCosine}) {
    for (const int64_t warmup : {0, 1, 4, 7}) {
      for (const int64_t decay_steps : {0, 1, 4, 5, 7, 9}) {
        for (const double min_lr : {0.0, 0.1}) {
          const LrSchedulerSpec spec{
              .type = type, .warmup_steps = warmup, .decay_steps = decay_steps, .min_lr = min_lr};
          const std::optional<int64_t> first = FirstStepWithoutRate(spec, 7);
          for (int64_t step = 1; step <= 7; ++step) {
            EXPECT_EQ(LearningRate(spec, 1, 7, step) == 0, first && step >= *first)
                << WordOf(type) << " warmup " << warmup << " decay " << decay_steps << " step "
                << step;
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace weft
