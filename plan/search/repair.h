// Repairs of a layout that are solved exactly instead of being dims of the lattice. They make
// misfits fit: how many blocks each stage holds where memory decides, what each stage recomputes,
// where the optimizer lives. And finalists faster: how wide ZeRO shards are spread. Pure.
#pragma once
#include <optional>
#include <vector>

#include "plan/search/lattice.h"
#include "plan/search/pricer.h"
#include "plan/search/space.h"

namespace weft {

// Blocks per stage with the fastest slowest stage among the splits that fit; nullopt: none fits.
// REQUIRES: layout.virtual_stages is 1, layout.pp at least 2.
std::optional<std::vector<int64_t>> BestSplit(Pricer& pricer, const Layout& layout);

// Per stage the cheapest recompute mode that fits; nullopt: some stage fits in no mode, or all take
// the same.
std::optional<std::vector<Recompute>> BestRecompute(Pricer& pricer, const Layout& layout);

// Adds to finds.fitting what repairs of the best finds yield and is better than the best that fits.
// Only what `constraints` leave free is repaired; kRun keeps what the engine runs.
void RepairFinds(Pricer& pricer, const Constraints& constraints, Purpose purpose, Finds& finds);

}  // namespace weft
