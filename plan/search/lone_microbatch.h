// A single microbatch goes through the stages one after the other: whatever the split of blocks,
// its passes take about the same, and what follows them decides. Splits are compared by the whole
// step here, not by their slowest stage as in balance.h and shape.h. Pure.
#pragma once
#include <vector>

#include "plan/search/pricer.h"
#include "plan/search/space.h"
#include "plan/spec/layout.h"

namespace weft {

// Whether the layout's splits are to be compared so.
inline bool HasLoneMicrobatch(const Layout& layout) {
  return layout.pp > 1 && layout.virtual_stages == 1 && layout.gradient_accumulation_steps == 1;
}

// Returns at most what follows the passes, whatever the split. REQUIRES: HasLoneMicrobatch;
// `passes`: those of one microbatch.
double LeastLoneEnd(Pricer& pricer, const Layout& layout, const LazyPasses& passes);

// Splits are looked for within these; `limit_s`: a step that takes longer is of no use.
struct LoneBounds {
  const LazyPasses& passes;
  double least_passes_s = 0;  // of any split
  double limit_s = 0;
};

struct LoneSplits {
  std::vector<Layout>
      near_best;       // best first, as near to it as a dry run may tell; empty: none fits
  bool lacks = false;  // memory rules out what would be faster
};

// Returns the fastest splits that are found from the layout's own by moving blocks to and from the
// ends of the pipeline; inner stages hold the same but for one block, the earliest the fewer. The
// head is in pieces where that is free and makes one fit. `free_recompute`: each stage may
// recompute as much more as does. REQUIRES: HasLoneMicrobatch; recompute_per_stage is empty.
LoneSplits FastestLoneSplits(const Space& space, Pricer& pricer, const Layout& layout,
                             const LoneBounds& bounds, bool free_recompute);

}  // namespace weft
