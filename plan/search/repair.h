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
  double complete_to_s = 0;     // nothing that fits has an objective below that and is missing
};

// Returns what fits and may be better than `best_s`, the best objective so far, and is not in
// finds.fitting: repairs, and what the lattice holds beyond its finalists. Every variant of `finds`
// is tried whose bound leaves that open.
Repaired RepairFinds(const Space& space, Pricer& pricer, const Finds& finds, double best_s);

// Any repair that fits, where nothing of the lattice does.
std::optional<Layout> AnyRepair(const Space& space, Pricer& pricer, const Finds& finds);

// The same of all whose objective is below `limit_s`.
std::vector<Priced> AllBelow(const Space& space, Pricer& pricer, const Finds& finds,
                             double limit_s);

}  // namespace weft
