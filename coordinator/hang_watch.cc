#include "coordinator/hang_watch.h"

#include <algorithm>
#include <vector>

namespace weft {
namespace {

constexpr size_t kKeptSteps = 256;

int64_t FloorOf(RankPhase phase) {
  switch (phase) {
    case RankPhase::kStart:
    case RankPhase::kCommInit:
      return kStartFloorMs;
    case RankPhase::kLoad:
      return kLoadFloorMs;
    case RankPhase::kSave:
      return kSaveFloorMs;
    case RankPhase::kTeardown:
      return kTeardownFloorMs;
    case RankPhase::kStep:
    case RankPhase::kEval:
      break;
  }
  return kStepFloorMs;
}

}  // namespace

void HangWatch::StepDone(int64_t now_ms) {
  steps_ms_.push_back(now_ms - moved_ms_);
  if (steps_ms_.size() > kKeptSteps) steps_ms_.pop_front();
  moved_ms_ = now_ms;
}

int64_t HangWatch::StepBudgetMs(double predicted_step_s) const {
  if (!KnowsSteps()) {
    return std::max(kStepFloorMs, static_cast<int64_t>(5000 * predicted_step_s));
  }
  std::vector<int64_t> sorted(steps_ms_.begin(), steps_ms_.end());
  const size_t p99 = (sorted.size() * 99 + 99) / 100 - 1;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<int64_t>(p99), sorted.end());
  return std::max(kLeastStepBudgetMs, 3 * sorted[p99]);
}

bool HangWatch::IsQuiet(const Job& job, int64_t now_ms) const {
  const Generation& generation = job.generation;
  int64_t budget_ms = kStoppedFloorMs;
  switch (generation.phase) {
    case GenerationPhase::kOpen:
    case GenerationPhase::kClosed:
      return false;
    case GenerationPhase::kStopping:
      if (generation.cause) return false;
      break;
    case GenerationPhase::kTraining:
      budget_ms = std::min(budget_ms, StepBudgetMs(job.predicted_step_s));
      break;
    case GenerationPhase::kLaunched:
    case GenerationPhase::kSealed:
      break;
  }
  return now_ms - moved_ms_ > budget_ms - kLookAheadMs;
}

int64_t BudgetMs(const Culprit& culprit, int64_t step_budget_ms) {
  if (culprit.phase == RankPhase::kStep || culprit.phase == RankPhase::kEval) {
    // Before steps are known, a stop is known for what it is.
    return culprit.evidence == Evidence::kStopped ? std::min(step_budget_ms, kStoppedFloorMs)
                                                  : step_budget_ms;
  }
  const int64_t floor_ms = FloorOf(culprit.phase);
  return culprit.evidence == Evidence::kStopped ? std::min(floor_ms, kStoppedFloorMs) : floor_ms;
}

}  // namespace weft
