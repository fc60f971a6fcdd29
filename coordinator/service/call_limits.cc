#include "coordinator/service/call_limits.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kForgetsEveryMs = 10000;

}  // namespace

absl::Status CallLimits::TakeCall(const std::string& caller, int64_t now_ms) {
  if (options_.calls_per_s <= 0) return absl::OkStatus();
  const std::lock_guard lock(mutex_);
  if (now_ms - forgot_ms_ >= kForgetsEveryMs) Forget(now_ms);
  Budget& budget = budgets_[caller];
  const double most = 2.0 * options_.calls_per_s;
  if (budget.since_ms < 0) {
    budget.calls = most;
  } else {
    const double passed_s = static_cast<double>(now_ms - budget.since_ms) / 1000;
    budget.calls = std::min(most, budget.calls + passed_s * options_.calls_per_s);
  }
  budget.since_ms = now_ms;
  if (budget.calls < 1) {
    return absl::ResourceExhaustedError(
        absl::StrCat(caller, " makes more than ", options_.calls_per_s,
                     " calls a second; ask again in a second (weftd --calls-per-second)"));
  }
  budget.calls -= 1;
  return absl::OkStatus();
}

void CallLimits::Forget(int64_t now_ms) {
  forgot_ms_ = now_ms;
  for (auto each = budgets_.begin(); each != budgets_.end();) {
    const Budget& budget = each->second;
    const bool is_idle =
        budget.streams == 0 && budget.plans == 0 && now_ms - budget.since_ms >= kForgetsEveryMs;
    each = is_idle ? budgets_.erase(each) : std::next(each);
  }
}

absl::StatusOr<CallLimits::Held> CallLimits::Hold(const std::string& caller, int Budget::*counted,
                                                  int most, const char* what) {
  int& count = budgets_[caller].*counted;
  if (count >= most) {
    return absl::ResourceExhaustedError(absl::StrCat(caller, " has ", count, " ", what,
                                                     " already, ", most,
                                                     " at most; ask again when one is through"));
  }
  ++count;
  return Held(nullptr, [this, caller, counted](void*) {
    const std::lock_guard lock(mutex_);
    --(budgets_[caller].*counted);
    if (counted == &Budget::plans) --plans_;
  });
}

absl::StatusOr<CallLimits::Held> CallLimits::TakeStream(const std::string& caller) {
  const std::lock_guard lock(mutex_);
  return Hold(caller, &Budget::streams, options_.streams, "streams open");
}

absl::StatusOr<CallLimits::Held> CallLimits::TakeLogs(const std::string& caller) {
  ASSIGN_OR_RETURN(Held stream, TakeStream(caller));
  const std::lock_guard lock(mutex_);  // given back before the stream is
  ASSIGN_OR_RETURN(Held logs, Hold(caller, &Budget::logs, options_.logs, "readers of logs"));
  return Held(std::make_shared<std::pair<Held, Held>>(std::move(stream), std::move(logs)));
}

absl::StatusOr<CallLimits::Held> CallLimits::TakePlan(const std::string& caller) {
  const std::lock_guard lock(mutex_);
  if (plans_ >= options_.plans_of_all) {
    return absl::ResourceExhaustedError(absl::StrCat(
        plans_, " plans are being made already, which is the most; ask again in a second"));
  }
  absl::StatusOr<Held> held =
      Hold(caller, &Budget::plans, options_.plans, "plans that are being made");
  if (held.ok()) ++plans_;
  return held;
}

}  // namespace weft
