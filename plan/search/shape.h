// A shape is what each stage of a pipeline holds and recomputes where memory decides: solved
// exactly instead of being dims of the lattice. Pure.
#pragma once
#include <optional>
#include <vector>

#include "plan/search/pricer.h"
#include "plan/spec/layout.h"

namespace weft {

// Says what may be chosen anew of a layout that does not fit.
struct FreeShape {
  bool split = false;      // REQUIRES: virtual_stages is 1
  bool recompute = false;  // by stage
};

// Returns the shapes with the fastest slowest stage among the splits and recompute modes per stage
// that are free and fit. At most one each: of the layout's own recompute, of its own split, and of
// both at once. Empty: nothing fits. REQUIRES: layout.pp at least 2.
std::vector<Layout> FittingShapes(Pricer& pricer, const Layout& layout, const FreeShape& free);

// Whether stages have room for all blocks, each for at least one, in some split that is tried, with
// the layout's recompute or, if that is free, with any on each stage: so they do where
// FittingShapes finds a split. REQUIRES: layout.pp at least 2.
bool HasRoomForSplit(Pricer& pricer, const Layout& layout, bool free_recompute);

// Returns per stage the cheapest recompute mode that fits; nullopt: some stage fits in no mode, or
// all take the same. REQUIRES: layout.pp at least 2.
std::optional<std::vector<Recompute>> BestRecompute(Pricer& pricer, const Layout& layout);

}  // namespace weft
