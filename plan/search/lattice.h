// The walk through the lattice: prices what could be the plan, cuts what provably is not. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/search/plan.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"

namespace weft {

struct Priced {
  Layout layout;
  TermSeconds time;
  double objective_s = 0;  // step time over goodput: what the search makes small
  Peak peak;
};

// Total and deterministic: by objective (in picoseconds: sums of the same work in another order
// count as equal), then simpler first (planner's "fewer mechanisms").
bool Better(const Priced& a, const Priced& b);

struct Finds {
  std::vector<Priced> fitting;  // best first, at most kFinalists
  std::vector<Priced> misfits;  // fastest first, at most kFinalists, faster than the last fitting
  std::vector<Priced> nearest;  // do not fit; least bytes first
  SearchCounts counts;
};
inline constexpr size_t kFinalists = 48;

// kNothing prices every point: what tests hold the other against.
enum class Cut { kByBounds, kNothing };
// Where nothing or little fits, most of the time goes into what is nearest, or best. The last finds
// one that fits, any, and no times.
enum class Wanted { kAll, kFitting, kWhetherAnyFits };
Finds SearchLattice(const Space& space, Pricer& pricer, Cut cut, Wanted wanted = Wanted::kAll);

}  // namespace weft
