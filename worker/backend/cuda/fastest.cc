#include "worker/backend/cuda/fastest.h"

#include <algorithm>

namespace weft {
namespace {

constexpr float kFaster = 0.98F;  // of the time so far: less is noise
constexpr float kBatchMs = 1;     // a clock that counts half microseconds is then exact enough
constexpr float kMostRuns = 20;   // of a batch
constexpr int kBatches = 3;

// Of one run; below 0 if it cannot run.
float BestMs(int way, const TimeRuns& time_runs) {
  if (time_runs(way, 1) < 0) return -1;  // loads its code
  const float once_ms = time_runs(way, 1);
  if (once_ms < 0) return -1;
  const auto runs =
      static_cast<int>(std::clamp(kBatchMs / std::max(once_ms, 1e-6F), 1.0F, kMostRuns));
  float best_ms = once_ms;
  for (int batch = 0; batch < kBatches; ++batch) {
    const float batch_ms = time_runs(way, runs);
    if (batch_ms < 0) return -1;
    best_ms = std::min(best_ms, batch_ms / static_cast<float>(runs));
  }
  return best_ms;
}

}  // namespace

int FastestWay(int count, const TimeRuns& time_runs) {
  int fastest = -1;
  float least_ms = 0;
  for (int way = 0; way < count; ++way) {
    const float ms = BestMs(way, time_runs);
    if (ms < 0 || (fastest >= 0 && ms >= kFaster * least_ms)) continue;
    fastest = way;
    least_ms = ms;
  }
  return fastest;
}

int FirstWay(int count, const TimeRuns& time_runs) {
  for (int way = 0; way < count; ++way) {
    if (time_runs(way, 1) >= 0) return way;
  }
  return -1;
}

}  // namespace weft
