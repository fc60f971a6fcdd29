// What each stage of a pipeline holds and recomputes where memory decides: solved exactly instead
// of being dims of the lattice. Pure.
#pragma once
#include <vector>

#include "plan/layout.h"
#include "plan/search/pricer.h"

namespace weft {

// What may be chosen anew of a layout that does not fit.
struct FreeShape {
  bool split = false;      // REQUIRES: virtual_stages is 1
  bool recompute = false;  // by stage
};

// Of all blocks per stage, and of all recompute modes per stage, that are free and fit, those with
// the fastest slowest stage. Each at most once: of the layout's own recompute, of its own split,
// and of both at once. Empty: nothing fits. REQUIRES: layout.pp at least 2.
std::vector<Layout> FittingShapes(Pricer& pricer, const Layout& layout, const FreeShape& free);

}  // namespace weft
