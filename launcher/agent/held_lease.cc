#include "launcher/agent/held_lease.h"

#include <algorithm>

#include "launcher/agent/lease_times.h"

namespace weft {

// A rank that comes back late hears of the end of a promise by any later lease; one that never does
// ends with this agent's.
std::optional<HeldLease::ForRanks> HeldLease::Take(int64_t sent_ms, int64_t lease_ms) {
  length_ms_ = lease_ms;
  sent_ms_ = std::max(sent_ms_, sent_ms);
  if (has_promise_ && !is_absence_over_) return std::nullopt;
  had_promise_ = had_promise_ || has_promise_;
  const int64_t stop_ms = sent_ms + RanksShareMs(lease_ms);
  end_ms_ = has_promise_ ? sent_ms + lease_ms : std::max(end_ms_, sent_ms + lease_ms);
  ranks_stop_ms_ = has_promise_ ? stop_ms : std::max(ranks_stop_ms_, stop_ms);
  has_promise_ = false;
  return ForRanks{stop_ms, HeartbeatMs(lease_ms), had_promise_, false};
}

std::optional<HeldLease::ForRanks> HeldLease::TakeAbsence(int64_t absent_ms) {
  if (end_ms_ == 0 || absent_ms <= 0) return std::nullopt;
  has_promise_ = true;
  is_absence_over_ = false;
  ranks_stop_ms_ = std::max(ranks_stop_ms_, sent_ms_ + std::min(absent_ms, kLongestMs));
  end_ms_ = std::max(end_ms_, ranks_stop_ms_ + length_ms_ - RanksShareMs(length_ms_));
  return ForRanks{ranks_stop_ms_, HeartbeatMs(length_ms_), false, true};
}

}  // namespace weft
