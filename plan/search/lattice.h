// The walk through the lattice: prices what could be the plan, cuts what provably is not. Pure.
#pragma once
#include <cstdint>
#include <limits>
#include <memory>
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
  return static_cast<uint8_t>(1 << (2 * layout.zero_stage + (layout.offloads_optimizer() ? 1 : 0)));
}

struct Finds {
  std::vector<Priced> fitting;    // best first; of the first look at most kFinalists
  std::vector<Priced> nearest;    // do not fit; least bytes first
  std::vector<Variant> variants;  // in no order; kByBounds alone
  SearchCounts counts;
  double complete_to_s = 0;  // no layout with an objective below that was cut by time
  double fitting_to_s = 0;   // nor one that fits left out of `fitting`
};
inline constexpr size_t kFinalists = 24;
inline constexpr double kUnknownSeconds = std::numeric_limits<double>::infinity();

// kNothing prices every point: what tests hold the other against.
enum class Cut { kByBounds, kNothing };
// Where nothing or little fits, most of the time goes into what is nearest, or best. kFitting finds
// what is as near to the best as a dry run may tell, and nothing that does not fit. The last finds
// one that fits, any, and no times.
enum class Wanted { kAll, kFitting, kWhetherAnyFits };

// The walk in two looks. Layouts that tp could share sequences of and does not are no simpler and
// hold no less than those that do, so all that is asked of them is whether one of them is the best:
// the first look leaves them out, and the best that came of it cuts most of the second.
class LatticeWalk {
 public:
  // Borrows both. Time cuts no layout with an objective below `complete_to_s`, finalist or not.
  // `known_s`: of a layout that is known to fit; what is further from it is of no use.
  LatticeWalk(const Space& space, Pricer& pricer, Cut cut, Wanted wanted = Wanted::kAll,
              double complete_to_s = 0, double known_s = kUnknownSeconds);
  ~LatticeWalk();

  Finds LookFirst();
  // Returns what the second look adds with objectives up to `limit_s`; its counts are those of the
  // first look's points. Call after LookFirst.
  Finds LookAgain(double limit_s);

  class Walk;  // of lattice.cc

 private:
  std::unique_ptr<Walk> walk_;  // nullptr: the lattice is empty
};

void AddFinds(Finds more, Finds& finds);

// Both looks: of the second what is within kDryRuns of the first one's best.
Finds SearchLattice(const Space& space, Pricer& pricer, Cut cut, Wanted wanted = Wanted::kAll,
                    double complete_to_s = 0);

}  // namespace weft
