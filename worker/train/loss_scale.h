// LossScale: what the loss of an fp16 run is multiplied by before its gradients are taken, so that
// small ones do not vanish among fp16's numbers (Micikevicius et al., arXiv:1710.03740, 3.2).
// Dynamic, it halves after `hysteresis` steps whose gradients overflowed, and doubles after
// `loss_scale_window` steps in a row that did not, as DeepSpeed's. The rule sees the same numbers
// on every rank, so all have the same scale. Pure.
#pragma once
#include <cstdint>

#include "checkpoint/manifest.h"
#include "plan/spec/job_spec.h"

namespace weft {

class LossScale {
 public:
  // One of 1 that never moves: fp32 and bf16.
  LossScale() = default;
  explicit LossScale(const Fp16Spec& fp16);

  double value() const { return value_; }

  // After a step whose gradients were finite.
  void TakeGood();
  // After one whose gradients were not, while its loss was. True if a lower scale may still cure
  // that: this one has fallen, or is about to.
  bool TakeOverflow();

  // To and from a checkpoint. One without a scale leaves this one as it is.
  void Store(RunProgress* progress) const;
  void Resume(const RunProgress& progress);

 private:
  Fp16Spec fp16_ = {.loss_scale = 1};
  bool exists_ = false;
  double value_ = 1;
  int64_t good_steps_ = 0;
  int64_t hysteresis_ = 0;  // overflows until it halves
};

}  // namespace weft
