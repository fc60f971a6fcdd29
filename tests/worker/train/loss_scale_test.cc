#include "worker/train/loss_scale.h"

#include <gtest/gtest.h>

#include "worker/train/update_guard.h"

namespace weft {
namespace {

Fp16Spec Dynamic() {
  return {.initial_scale_power = 4, .loss_scale_window = 3, .hysteresis = 2, .min_loss_scale = 4};
}

TEST(LossScale, HalvesAfterSoManyOverflowsDownToTheLeast) {
  LossScale scale(Dynamic());
  EXPECT_EQ(scale.value(), 16);
  EXPECT_TRUE(scale.TakeOverflow());  // hysteresis: not yet
  EXPECT_EQ(scale.value(), 16);
  EXPECT_TRUE(scale.TakeOverflow());
  EXPECT_EQ(scale.value(), 8);
  EXPECT_TRUE(scale.TakeOverflow());
  EXPECT_EQ(scale.value(), 4);
  EXPECT_FALSE(scale.TakeOverflow());  // no scale cures that
  EXPECT_EQ(scale.value(), 4);
}

TEST(LossScale, DoublesAfterAWindowWithoutOverflow) {
  LossScale scale(Dynamic());
  for (const double expected : {16, 16, 32, 32, 32, 64}) {
    scale.TakeGood();
    EXPECT_EQ(scale.value(), expected);
  }
  scale.TakeOverflow();  // starts the window again
  scale.TakeOverflow();
  for (const double expected : {32, 32, 64}) {
    scale.TakeGood();
    EXPECT_EQ(scale.value(), expected);
  }
}

TEST(LossScale, ThatIsFixedOrOfAnotherPrecisionNeverMoves) {
  for (LossScale scale : {LossScale(Fp16Spec{.loss_scale = 100}), LossScale()}) {
    const double before = scale.value();
    EXPECT_FALSE(scale.TakeOverflow());
    for (int i = 0; i < 2000; ++i) scale.TakeGood();
    EXPECT_EQ(scale.value(), before);
  }
  RunProgress progress;
  LossScale().Store(&progress);
  EXPECT_EQ(progress.loss_scale, 0);
}

TEST(LossScale, GoesOnWhereACheckpointStood) {
  LossScale whole(Dynamic());
  whole.TakeOverflow();
  whole.TakeGood();
  whole.TakeGood();
  RunProgress progress;
  whole.Store(&progress);
  LossScale resumed(Dynamic());
  resumed.Resume(progress);
  for (int i = 0; i < 4; ++i) {
    whole.TakeGood();
    resumed.TakeGood();
    EXPECT_EQ(resumed.value(), whole.value());
  }
  resumed.Resume({});  // of a run in bf16
  EXPECT_EQ(resumed.value(), whole.value());
}

TEST(UpdateGuard, CountsAnOverflowOnlyWhereNoLowerScaleCuresIt) {
  const double inf = __builtin_inf();
  UpdateGuard guard(1, LossScale(Dynamic()));
  for (int step = 1; step <= 3; ++step) {
    EXPECT_FALSE(guard.Admit(step, 1, inf));
    EXPECT_TRUE(guard.CheckGoingOn().ok()) << step;
  }
  EXPECT_EQ(guard.loss_scale(), 4);
  EXPECT_FALSE(guard.Admit(4, 1, inf));
  EXPECT_FALSE(guard.CheckGoingOn().ok());
  EXPECT_EQ(guard.progress().skipped_steps, 4);
  // A loss that is not finite has nothing to do with the scale of gradients.
  UpdateGuard other(1, LossScale(Dynamic()));
  EXPECT_FALSE(other.Admit(1, inf, inf));
  EXPECT_EQ(other.loss_scale(), 16);
  EXPECT_FALSE(other.CheckGoingOn().ok());
}

}  // namespace
}  // namespace weft
