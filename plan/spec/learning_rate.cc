#include "plan/spec/learning_rate.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "plan/errors.h"

namespace weft {

double LearningRate(const LrSchedulerSpec& scheduler, double lr, int64_t training_steps,
                    int64_t step) {
  CHECK(step >= 1);
  const int64_t warmup = scheduler.warmup_steps;
  if (step <= warmup) {
    const double first = scheduler.warmup_min_lr;
    return first + (lr - first) * static_cast<double>(step) / static_cast<double>(warmup);
  }
  if (scheduler.type == LrSchedule::kConstant) return lr;
  const int64_t decay_end = scheduler.decay_steps > 0 ? scheduler.decay_steps : training_steps;
  const auto decay = static_cast<double>(std::max<int64_t>(decay_end - warmup, 1));
  const double t = std::min(static_cast<double>(step - warmup) / decay, 1.0);
  if (scheduler.type == LrSchedule::kLinear) return lr + t * (scheduler.min_lr - lr);
  return scheduler.min_lr + (lr - scheduler.min_lr) / 2 * (1 + std::cos(std::numbers::pi * t));
}

std::optional<int64_t> FirstStepWithoutRate(const LrSchedulerSpec& scheduler,
                                            int64_t training_steps) {
  if (scheduler.type == LrSchedule::kConstant || scheduler.min_lr > 0) return std::nullopt;
  const int64_t decay_end = scheduler.decay_steps > 0 ? scheduler.decay_steps : training_steps;
  const int64_t first = std::max(decay_end, scheduler.warmup_steps + 1);
  return first <= training_steps ? std::optional(first) : std::nullopt;
}

}  // namespace weft
