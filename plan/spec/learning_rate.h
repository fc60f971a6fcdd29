// The learning rate as a function of the step. Pure.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/spec/job_spec.h"

namespace weft {

// Learning rate of `step` (steps count from 1) with peak `lr`.
//   step <= warmup_steps: warmup_min_lr + (lr - warmup_min_lr) * step / warmup_steps
//   later: t = (step - warmup_steps) / (decay_end - warmup_steps), at most 1, where decay_end is
//   decay_steps, or training.steps if that is 0 (as Megatron-LM's lr-decay-iters, warmup counts);
//   constant: lr; linear: lr + t * (min_lr - lr); cosine: min_lr + (lr - min_lr) / 2 * (1 + cos(pi
//   t)).
double LearningRate(const LrSchedulerSpec& scheduler, double lr, int64_t training_steps,
                    int64_t step);

// Returns the first step of those at the end whose rate is 0, so that they change nothing; nullopt:
// all change something. REQUIRES: a peak above 0.
std::optional<int64_t> FirstStepWithoutRate(const LrSchedulerSpec& scheduler,
                                            int64_t training_steps);

}  // namespace weft
