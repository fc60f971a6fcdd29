#include "worker/train/loss_scale.h"

#include <algorithm>
#include <cmath>

namespace weft {

LossScale::LossScale(const Fp16Spec& fp16)
    : fp16_(fp16),
      exists_(true),
      value_(fp16.loss_scale > 0 ? fp16.loss_scale
                                 : std::ldexp(1.0, static_cast<int>(fp16.initial_scale_power))),
      hysteresis_(fp16.hysteresis) {}

void LossScale::TakeGood() {
  if (fp16_.loss_scale > 0) return;
  ++good_steps_;
  if (good_steps_ % fp16_.loss_scale_window != 0) return;
  value_ *= 2;
  hysteresis_ = fp16_.hysteresis;
}

bool LossScale::TakeOverflow() {
  if (fp16_.loss_scale > 0) return false;
  good_steps_ = 0;
  if (hysteresis_ > 1) {
    --hysteresis_;
    return true;
  }
  const double lower = std::max(value_ / 2, fp16_.min_loss_scale);
  const bool falls = lower < value_;
  value_ = std::min(value_, lower);
  return falls;
}

void LossScale::Store(RunProgress* progress) const {
  progress->loss_scale = exists_ ? value_ : 0;
  progress->loss_scale_good_steps = good_steps_;
  progress->loss_scale_hysteresis = hysteresis_;
}

void LossScale::Resume(const RunProgress& progress) {
  if (progress.loss_scale <= 0 || fp16_.loss_scale > 0) return;
  value_ = progress.loss_scale;
  good_steps_ = progress.loss_scale_good_steps;
  hysteresis_ = progress.loss_scale_hysteresis;
}

}  // namespace weft
