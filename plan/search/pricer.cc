#include "plan/search/pricer.h"

#include <cmath>

namespace weft {

MemoryTerm Peak::largest() const {
  MemoryEstimate own = memory;
  own[MemoryTerm::kContext] = 0;
  own[MemoryTerm::kGuard] = 0;
  return own.largest();
}

Pricer::Pricer(const Question& question)
    : question_(question),
      table_(MemoryTableOf(question)),
      checkpoint_bytes_(CheckpointBytes(question)) {}

// The waste delta / tau + tau / 2M is least at tau = sqrt(2 delta M).
const Pricer::Faults& Pricer::FaultsOf(int world_size) {
  const auto [found, is_new] = faults_.try_emplace(world_size);
  Faults& faults = found->second;
  if (!is_new) return faults;
  faults.costs = FaultCostsOf(question_.cluster, checkpoint_bytes_, world_size);
  const double best_s = std::sqrt(2 * faults.costs.save_s * faults.costs.between_stops_s);
  const Waste least{.saving = best_s > 0 ? faults.costs.save_s / best_s : 0,
                    .lost_steps = best_s / 2 / faults.costs.between_stops_s,
                    .restarts = faults.costs.restart_s / faults.costs.between_stops_s};
  faults.most_goodput = GoodputOf(least);
  return faults;
}

double Pricer::Goodput(const Layout& layout, double step_s) {
  return BestGoodput(FaultsOf(layout.world_size()).costs, step_s);
}

double Pricer::MostGoodput(int world_size) {
  return FaultsOf(world_size).most_goodput;
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
