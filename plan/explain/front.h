// The Pareto front of plans over step time, memory and number of devices: what less memory, or
// fewer devices, would cost in time. Each point is the best plan under a limit, not a leftover of
// another search. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/search/plan.h"
#include "plan/search/space.h"

namespace weft {

struct FrontPoint {
  Layout layout;
  TermSeconds time;
  double goodput = 1;
  int64_t peak_bytes = 0;  // of the fullest stage, kContext left out
  int ranks = 0;
};

// Fastest first; no point is at most as good as another in all three.
std::vector<FrontPoint> ParetoFront(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose);
// The same from those who have FindPlan's answer to the very question.
std::vector<FrontPoint> ParetoFront(const Question& question, const LayoutSpec& constraints,
                                    Purpose purpose, const Plan& plan);

}  // namespace weft
