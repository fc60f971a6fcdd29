#include "worker/backend/cuda/runtime/fastest.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

constexpr float kFaster = 0.98F;  // of the time so far: less is noise
constexpr float kHopeless = 2;    // times the least: no disturbance of single runs explains it
constexpr float kWarmMs = 20;
constexpr int kMostWarmRuns = 128;  // of a batch, each of which is twice the one before
constexpr float kBatchMs = 1;       // a clock that counts half microseconds is then exact enough
constexpr float kMostRuns = 20;     // of a batch
constexpr int kSingles = 2;
constexpr int kBatches = 3;
constexpr float kMostMs = 1000;

class Race {
 public:
  Race(int count, const TimeRuns& time_runs)
      : time_runs_(time_runs), best_ms_(static_cast<size_t>(count), kCannotRun) {}

  Fastest Run() {
    WarmUp();
    for (int way = 0; way < count() && spent_ms_ < kMostMs; ++way) RunSingles(way);
    const std::vector<float> once_ms = best_ms_;
    const float least_ms = Least();
    for (int batch = 0; batch < kBatches; ++batch) {
      for (int way = 0; way < count() && spent_ms_ < kMostMs; ++way) {
        const float once = once_ms[static_cast<size_t>(way)];
        if (once < 0 || once > kHopeless * least_ms) continue;
        Time(way, static_cast<int>(std::clamp(kBatchMs / std::max(once, 1e-6F), 1.0F, kMostRuns)));
      }
    }
    return Winner();
  }

 private:
  static constexpr float kCannotRun = -1;
  static constexpr float kNotTimed = 1e30F;

  int count() const { return static_cast<int>(best_ms_.size()); }

  void WarmUp() {
    for (int way = 0; way < count(); ++way) {
      if (time_runs_(way, 1) < 0) continue;
      float warm_ms = 0;
      for (int runs = 1; runs <= kMostWarmRuns && warm_ms < kWarmMs; runs *= 2) {
        warm_ms += std::max(time_runs_(way, runs), 0.0F);
      }
      return;
    }
  }

  void RunSingles(int way) {
    const float first_ms = time_runs_(way, 1);
    if (first_ms < 0) return;
    spent_ms_ += first_ms;  // not counted: it may have loaded its code
    best_ms_[static_cast<size_t>(way)] = kNotTimed;
    for (int run = 0; run < kSingles; ++run) Time(way, 1);
  }

  // A way that fails once is out.
  void Time(int way, int runs) {
    float& best_ms = best_ms_[static_cast<size_t>(way)];
    if (best_ms < 0) return;
    const float ms = time_runs_(way, runs);
    spent_ms_ += std::max(ms, 0.0F);
    best_ms = ms < 0 ? kCannotRun : std::min(best_ms, ms / static_cast<float>(runs));
  }

  float Least() const {
    float least_ms = kNotTimed;
    for (const float ms : best_ms_) {
      if (ms >= 0) least_ms = std::min(least_ms, ms);
    }
    return least_ms;
  }

  Fastest Winner() const {
    Fastest fastest;
    for (int way = 0; way < count(); ++way) {
      const float ms = best_ms_[static_cast<size_t>(way)];
      if (ms < 0 || (fastest.way >= 0 && ms >= kFaster * fastest.ms)) continue;
      fastest = {.way = way, .ms = ms};
    }
    return fastest;
  }

  const TimeRuns& time_runs_;
  std::vector<float> best_ms_;  // of one run, by way
  float spent_ms_ = 0;
};

}  // namespace

Fastest FastestWay(int count, const TimeRuns& time_runs) {
  return Race(count, time_runs).Run();
}

}  // namespace weft
