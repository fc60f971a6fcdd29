#include "worker/train/update_guard.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace weft {

namespace {

constexpr char kDiverged[] =
    "training has diverged; lower optimizer.lr, raise lr_scheduler.warmup_steps or set "
    "training.gradient_clipping, then resume or start with --fresh";
// Before the first update there is nothing that could have diverged.
constexpr char kFromTheStart[] =
    "no update was made yet, so the weights that training starts from hold such values, or they "
    "overflow in training.mixed_precision; check model.init_from with weft eval, or compute in "
    "fp32";

absl::Status NotFinite(absl::string_view what, double value, int64_t step, const char* cure) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " of step ", step, " is ", value, ": ", cure));
}

}  // namespace

absl::Status CheckFinite(absl::string_view what, double value, int64_t step) {
  return std::isfinite(value) ? absl::OkStatus() : NotFinite(what, value, step, kDiverged);
}

void UpdateGuard::Resume(const RunProgress& progress) {
  progress_ = progress;
  has_updated_ = true;
  loss_scale_.Resume(progress);
  loss_scale_.Store(&progress_);
}

bool UpdateGuard::Admit(int64_t step, double loss, double grad_norm) {
  const bool has_loss = std::isfinite(loss);
  const char* const cure = has_updated_ ? kDiverged : kFromTheStart;
  cause_ = absl::OkStatus();
  if (!has_loss) {
    cause_ = NotFinite("loss", loss, step, cure);
  } else if (!std::isfinite(grad_norm)) {
    cause_ = NotFinite("gradient norm", grad_norm, step, cure);
  }
  if (cause_.ok()) {
    has_updated_ = true;
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
