// UpdateGuard: whether a step's update is carried out. One whose loss or gradient norm is not
// finite is not: weights and optimizer state stay as they are, the step still takes its place in
// the data and the learning rate. Too many of them in a row end the run. Every rank asks with the
// same two numbers, so all come to the same verdict. Used by the trainer's thread.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "checkpoint/manifest.h"
#include "worker/train/loss_scale.h"

namespace weft {

// OK if `value` of `step`, after updates, is finite. FailedPrecondition tells the coordinator not
// to try again: the same steps would end the same way.
absl::Status CheckFinite(absl::string_view what, double value, int64_t step);

class UpdateGuard {
 public:
  // `most_in_a_row` skipped steps in a row end the run; >= 1.
  explicit UpdateGuard(int64_t most_in_a_row, const LossScale& loss_scale = {})
      : most_in_a_row_(most_in_a_row), loss_scale_(loss_scale) {
    loss_scale_.Store(&progress_);
  }

  // From a checkpoint: counts and scale go on.
  void Resume(const RunProgress& progress);

  // Returns the factor of the next step's loss; 1 in fp32 and bf16.
  double loss_scale() const { return loss_scale_.value(); }

  // True: both are finite, the update may be carried out. Counts the step otherwise. Moves the loss
  // scale.
  bool Admit(int64_t step, double loss, double grad_norm);

  // FailedPrecondition, with the cause, once most_in_a_row steps in a row were skipped.
  absl::Status CheckGoingOn() const;

  const RunProgress& progress() const { return progress_; }

 private:
  const int64_t most_in_a_row_;
  LossScale loss_scale_;
  RunProgress progress_;
  bool has_updated_ = false;  // in this run, of this generation or before
  absl::Status cause_;        // of the newest skipped step
};

}  // namespace weft
