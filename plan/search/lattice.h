// The walk through the lattice: prices what could be the plan, cuts what provably is not. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/search/plan.h"
#include "plan/search/priced.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"

namespace weft {

// A layout whatever its ZeRO stage, of which a bound on the time leaves open whether it is among
// the finalists, and what became of its places: a bit each of `PlaceOf`.
struct Variant {
  Layout layout;
  ScheduleChoice choice;
  double least_s = 0;  // at most its passes, without what ZeRO 2 and 3 wait for
  double bound_s = 0;  // on the objective, whatever its shape and wherever its states are
  uint8_t fits = 0;    // is known to fit
  uint8_t lacks = 0;   // is known not to
};
// Stages of ZeRO, each with the optimizer on the device and on the host.
inline uint8_t PlaceOf(const Layout& layout) {
  return static_cast<uint8_t>(1 << (2 * layout.zero_stage + (layout.offload_optimizer ? 1 : 0)));
}

struct Finds {
  std::vector<Priced> fitting;    // best first, at most kFinalists
  std::vector<Priced> nearest;    // do not fit; least bytes first
  std::vector<Variant> variants;  // in no order; kByBounds alone
  SearchCounts counts;
  double complete_to_s = 0;  // no layout with an objective below that was cut by time
};
inline constexpr size_t kFinalists = 48;

// kNothing prices every point: what tests hold the other against.
enum class Cut { kByBounds, kNothing };
// Where nothing or little fits, most of the time goes into what is nearest, or best. The last finds
// one that fits, any, and no times.
enum class Wanted { kAll, kFitting, kWhetherAnyFits };
// Time cuts no layout with an objective below `complete_to_s`, finalist or not.
Finds SearchLattice(const Space& space, Pricer& pricer, Cut cut, Wanted wanted = Wanted::kAll,
                    double complete_to_s = 0);

}  // namespace weft
