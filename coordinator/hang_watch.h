// HangWatch knows how long a generation has not moved, and how long what it does may take. Pure:
// time is an argument. It only says when to look at the ranks, and whether what was seen of a
// culprit has lasted too long; who that is, culprit.h says.
#pragma once
#include <cstdint>
#include <deque>
#include <string>

#include "coordinator/culprit.h"
#include "coordinator/job_state.h"

namespace weft {

inline constexpr size_t kStepSamples = 20;  // that a budget takes

class HangWatch {
 public:
  // Something has happened that ranks bring about.
  void Moved(int64_t now_ms) { moved_ms_ = now_ms; }
  // Rank 0 has done a step: what it took counts from the last time that something moved.
  void StepDone(int64_t now_ms);
  // Other ranks, or another layout: what steps took says nothing any more.
  void Forget() { steps_ms_.clear(); }

  // Whether so many steps were seen that they tell what one takes. Until then nobody who computes
  // is held to hang: on a slow machine one action of a large model takes minutes.
  bool KnowsSteps() const { return steps_ms_.size() >= kStepSamples; }
  // max(2 s, 3 x the 99th percentile) of the last steps; before there are 20 of them, a floor that
  // the predicted step raises.
  int64_t StepBudgetMs(double predicted_step_s) const;
  // Whether nothing has moved for so long that it is time to look at the ranks.
  bool IsQuiet(const Job& job, int64_t now_ms) const;
  int64_t moved_ms() const { return moved_ms_; }

 private:
  int64_t moved_ms_ = 0;
  std::deque<int64_t> steps_ms_;
};

// How long the culprit may be as it is.
int64_t BudgetMs(const Culprit& culprit, int64_t step_budget_ms);

inline constexpr int64_t kLeastStepBudgetMs = 2000;
inline constexpr int64_t kStepFloorMs = 20000;  // of the first steps
// Floors of what steps do not bound. A rank that reads, writes or computes meanwhile has moved.
inline constexpr int64_t kStartFloorMs = 20000;
inline constexpr int64_t kLoadFloorMs = 20000;
inline constexpr int64_t kSaveFloorMs = 30000;
inline constexpr int64_t kTeardownFloorMs = 20000;
// A stopped process does not go on by itself, whatever it was at.
inline constexpr int64_t kStoppedFloorMs = 5000;
// Agents are asked so often while nothing moves, and so long before the budget is over.
inline constexpr int64_t kLookAtRanksEveryMs = 250;
inline constexpr int64_t kLookAheadMs = 800;

}  // namespace weft
