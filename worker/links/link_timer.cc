#include "worker/links/link_timer.h"

#include <algorithm>
#include <utility>

#include "plan/errors.h"
#include "worker/backend/loader.h"

namespace weft {
namespace {

constexpr int kTransfers = 4;
// A repetition takes so long if it can; its calls are at most so many times those of the one
// before, as the next call may be a slow one.
constexpr double kLeastTransfersSeconds = 5e-3;
constexpr double kMoreRepeats = 8;

}  // namespace

LinkTimer::LinkTimer(Device& device, Comm& comm, int group, double seconds,
                     std::function<double()> now_s)
    : device_(device), comm_(comm), group_(group), seconds_(seconds), now_s_(std::move(now_s)) {}

absl::StatusOr<double> LinkTimer::Time(const std::function<absl::Status()>& call) {
  RETURN_IF_ERROR(call());
  RETURN_IF_ERROR(ToStatus(device_.Synchronize()));
  double best_s = 0;
  double spent_s = 0;
  int repeats = 1;
  for (int repetition = 0; repetition < kTransfers; ++repetition) {
    if (repetition > 1 && spent_s >= seconds_) break;
    RETURN_IF_ERROR(ToStatus(comm_.Barrier(group_)));
    const double start_s = now_s_();
    for (int i = 0; i < repeats; ++i) RETURN_IF_ERROR(call());
    RETURN_IF_ERROR(ToStatus(device_.Synchronize()));
    double once_s = (now_s_() - start_s) / repeats;
    RETURN_IF_ERROR(ToStatus(comm_.AllReduceHost(group_, ReduceOp::kMax, &once_s, 1)));
    if (repetition == 0 || once_s < best_s) best_s = once_s;
    spent_s += once_s * repeats;
    const double wanted = kLeastTransfersSeconds / std::max(once_s, 1e-9);
    repeats = static_cast<int>(std::clamp(wanted, 1.0, kMoreRepeats * repeats));
  }
  return best_s;
}

}  // namespace weft
