// Neighbours of a layout in a pipeline: one block moved from a stage to another one, each of the
// two recomputing as little as fits then, and every stage recomputing as little as fits. A search
// ends where none of its answer's neighbours is better. Pure.
#pragma once
#include <vector>

#include "plan/search/priced.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"

namespace weft {

// Returns the neighbours of `of` that keep what is fixed, fit, and have an objective below
// `limit_s` by closed forms, in no order. Of pipelines of many stages blocks move between stages
// that differ from one beside them.
std::vector<Priced> NeighboursBelow(const Space& space, Pricer& pricer, const Layout& of,
                                    double limit_s);

}  // namespace weft
