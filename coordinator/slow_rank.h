// SlowWatch tells which rank the others have to wait for, step after step, although it goes on. It
// compares how long ranks that do the same work (members of one tensor, replica, shard or context
// group) compute, not how long their steps last: steps are equally long for all. Pure: time is an
// argument. A rank that has no such peer is compared with nobody, nor is one that waits for its
// device, whose own work cannot be told from that.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "coordinator/culprit.h"

namespace weft {

struct SlowRank {
  int rank = -1;  // -1: none is slow
  std::string host;
  double share = 0;        // of its step, in which it computes
  double times = 0;        // as long as the median of its peers
  int64_t since_step = 0;  // at which the first window with this verdict began
};

class SlowWatch {
 public:
  // Takes what was seen of all ranks of a generation. Returns a verdict when it changes: after 3
  // windows in a row with the same slow rank, or as many without one.
  std::optional<SlowRank> Look(int64_t now_ms, absl::Span<const RankSeen> ranks);
  // Other ranks come.
  void Forget() { *this = SlowWatch(); }

 private:
  struct Mark {
    int64_t step = 0;
    int64_t busy_ms = 0;
  };
  void Begin(int64_t now_ms, absl::Span<const RankSeen> ranks);
  int64_t BegunStep(int rank) const;

  int64_t begun_ms_ = 0;
  std::map<int, Mark> begun_;  // by rank
  int candidate_ = -1;
  int windows_ = 0;         // in a row with the same candidate
  int64_t since_step_ = 0;  // of the first of them
  int named_ = -1;
};

// The slowest of those that compute for so much longer than their peers do.
inline constexpr double kSlowTimes = 1.5;
inline constexpr double kSlowShare = 0.2;  // and what they do so is this share of a step
inline constexpr int64_t kSlowWindowMs = 4000;
inline constexpr int64_t kSlowWindowSteps = 5;
inline constexpr int kSlowWindows = 3;
inline constexpr int64_t kLookForSlowMs = 2000;

}  // namespace weft
