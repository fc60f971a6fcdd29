#include "plan/search/pricer.h"

#include <algorithm>

namespace weft {

MemoryTerm Peak::largest() const {
  MemoryEstimate own = memory;
  own[MemoryTerm::kContext] = 0;
  return own.largest();
}

Pricer::Pricer(const Question& question)
    : question_(question),
      table_(MemoryTableOf(question)),
      checkpoint_bytes_(CheckpointBytes(question)) {}

double Pricer::Goodput(const Layout& layout, double step_s) {
  const auto [found, is_new] = faults_.try_emplace(layout.world_size());
  if (is_new) {
    found->second = FaultCostsOf(question_.cluster, checkpoint_bytes_, layout.world_size());
  }
  return BestGoodput(found->second, step_s);
}

Peak Pricer::PeakOf(const Layout& layout) {
  Peak peak{.stage = 0, .memory = StageOf(layout, 0)};
  const auto look_at = [&](int stage) {
    const MemoryEstimate memory = StageOf(layout, stage);
    if (memory.total_bytes() > peak.total_bytes()) peak = {.stage = stage, .memory = memory};
  };
  // Of an even split's inner stages none holds more than the first of them.
  const bool even = layout.stage_blocks.empty() && layout.stage_recompute.empty();
  if (even) {
    if (layout.pp > 2) look_at(1);
    if (layout.pp > 1) look_at(layout.pp - 1);
  } else {
    for (int stage = 1; stage < layout.pp; ++stage) look_at(stage);
  }
  return peak;
}

}  // namespace weft
