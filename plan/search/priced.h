// Priced: a layout with what the search knows of it, and the order of such. Pure values.
#pragma once
#include "plan/estimate/step_estimate.h"
#include "plan/search/pricer.h"
#include "plan/spec/layout.h"

namespace weft {

struct Priced {
  Layout layout;
  TermSeconds time;
  double objective_s = 0;  // step time over goodput: what the search makes small
  Peak peak;
  bool repaired = false;  // not of the lattice's finalists
};

// Dry runs nearly always exceed closed forms by less than that: among layouts as near to the best a
// dry run decides.
inline constexpr double kDryRuns = 1.01;

// Total and deterministic: by objective (in picoseconds: sums of the same work in another order
// count as equal), then simpler first (planner's "fewer mechanisms").
bool Better(const Priced& a, const Priced& b);

}  // namespace weft
