#include "worker/update_guard.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace weft {

absl::Status CheckFinite(absl::string_view what, double value, int64_t step) {
  if (std::isfinite(value)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " of step ", step, " is ", value,
                   ": training has diverged; lower optimizer.lr, raise lr_scheduler.warmup_steps "
                   "or set training.gradient_clipping, then resume or start with --fresh"));
}

void UpdateGuard::Resume(const RunProgress& progress) {
  progress_ = progress;
  loss_scale_.Resume(progress);
  loss_scale_.Store(&progress_);
}

bool UpdateGuard::Admit(int64_t step, double loss, double grad_norm) {
  cause_ = CheckFinite("loss", loss, step);
  const bool has_loss = cause_.ok();
  if (has_loss) cause_ = CheckFinite("gradient norm", grad_norm, step);
  if (cause_.ok()) {
    progress_.skipped_in_a_row = 0;
    loss_scale_.TakeGood();
  } else {
    ++progress_.skipped_steps;
    if (!has_loss || !loss_scale_.TakeOverflow()) ++progress_.skipped_in_a_row;
  }
  loss_scale_.Store(&progress_);
  return cause_.ok();
}

absl::Status UpdateGuard::CheckGoingOn() const {
  if (progress_.skipped_in_a_row < most_in_a_row_) return absl::OkStatus();
  return {cause_.code(), absl::StrCat(cause_.message(), "; ", progress_.skipped_in_a_row,
                                      " steps in a row were skipped, as many as "
                                      "training.max_consecutive_skipped_steps allows")};
}

}  // namespace weft
