// Repairs: what of a layout is solved for instead of being a dim of the lattice. They make misfits
// fit: how many blocks each stage holds and what it recomputes where memory decides. And finalists
// faster: how wide ZeRO shards are spread. Pure.
#pragma once
#include <optional>
#include <vector>

#include "plan/search/lattice.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"

namespace weft {

struct Repaired {
  std::vector<Priced> fitting;  // objectives by closed forms
  double complete_to_s = 0;     // no repair that fits has an objective below that and is missing
};

// Returns the repairs that fit and may be better than `best_s`, the best objective so far. Every
// variant of `finds` is tried whose bound leaves that open. Layouts of finds.fitting are left out.
Repaired RepairFinds(const Space& space, Pricer& pricer, const Finds& finds, double best_s);

// Any repair that fits, where nothing of the lattice does.
std::optional<Layout> AnyRepair(const Space& space, Pricer& pricer, const Finds& finds);

// All of which the objective is below `limit_s`, also what the lattice holds beyond its finalists.
std::vector<Priced> AllBelow(const Space& space, Pricer& pricer, const Finds& finds,
                             double limit_s);

}  // namespace weft
