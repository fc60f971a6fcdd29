// The best of each group get their dry runs here, and are told part by part.
#include <algorithm>
#include <utility>

#include "plan/errors.h"
#include "plan/mixed/mixed_search.h"

namespace weft {
namespace {

Layout LayoutOf(const MixedPlan& plan, const PartUse& use) {
  Layout layout = plan.layout;
  if (plan.way == MixedWay::kStages) return layout;
  layout.gradient_accumulation_steps = use.microbatches;
  layout.recompute_per_stage.assign(static_cast<size_t>(layout.pp), use.recompute);
  return layout;
}

// Takes what the stages of `use` hold and how busy they are.
void Fill(FleetPart& part, const Layout& layout, const MixedStep& step, double step_s,
          PartUse& use) {
  use.busy_share = 0;
  for (int stage = use.first_stage; stage < use.first_stage + use.stages; ++stage) {
    const MemoryEstimate memory = part.MemoryOf(layout, stage);
    if (memory.total_bytes() > use.fullest.total_bytes()) use.fullest = memory;
    use.busy_share = std::max(use.busy_share, step.busy_s[static_cast<size_t>(stage)] / step_s);
  }
}

}  // namespace

absl::Status MixedSearch::Replay(Candidate& candidate) {
  MixedPlan& plan = candidate.plan;
  if (plan.way == MixedWay::kStages) {
    ASSIGN_OR_RETURN(const MixedStep step, ReplayMixed(plan.layout, candidate.part_of_stage));
    plan.step_s = step.total_s;
    return absl::OkStatus();
  }
  plan.step_s = 0;
  for (const PartUse& use : plan.uses) {
    const Layout layout = LayoutOf(plan, use);
    const std::vector<FleetPart*> on(static_cast<size_t>(layout.pp),
                                     joined_[static_cast<size_t>(use.part)].get());
    ASSIGN_OR_RETURN(const MixedStep step, ReplayMixed(layout, on));
    plan.step_s = std::max(plan.step_s, step.total_s);
  }
  return absl::OkStatus();
}

void MixedSearch::Describe(Candidate& candidate) {
  MixedPlan& plan = candidate.plan;
  const int width = plan.layout.cp * plan.layout.tp;
  if (plan.way == MixedWay::kReplicas) {
    for (PartUse& use : plan.uses) {
      const Layout layout = LayoutOf(plan, use);
      FleetPart& part = *joined_[static_cast<size_t>(use.part)];
      use.devices = use.replicas * use.stages * width;
      const std::vector<FleetPart*> on(static_cast<size_t>(layout.pp), &part);
      Fill(part, layout, EstimateMixed(layout, on), plan.step_s, use);
    }
  } else {
    const MixedStep step = EstimateMixed(plan.layout, candidate.part_of_stage);
    for (int stage = 0; stage < plan.layout.pp; ++stage) {
      FleetPart* const part = candidate.part_of_stage[static_cast<size_t>(stage)];
      const auto index = std::find_if(parts_.begin(), parts_.end(),
                                      [&](const auto& each) { return each.get() == part; });
      const auto number = static_cast<int>(index - parts_.begin());
      if (plan.uses.empty() || plan.uses.back().part != number) {
        plan.uses.push_back({.part = number,
                             .first_stage = stage,
                             .replicas = plan.layout.dp,
                             .microbatches = plan.layout.gradient_accumulation_steps,
                             .recompute = plan.layout.recompute_of(stage)});
      }
      PartUse& use = plan.uses.back();
      ++use.stages;
      use.blocks.push_back(plan.layout.layers_per_stage[static_cast<size_t>(stage)]);
      use.devices = use.stages * plan.layout.dp * width;
    }
    for (PartUse& use : plan.uses) {
      Fill(*parts_[static_cast<size_t>(use.part)], plan.layout, step, plan.step_s, use);
    }
  }
  double busiest = 0;
  for (const PartUse& use : plan.uses) busiest = std::max(busiest, use.busy_share);
  plan.idle_share = std::max(0.0, 1 - busiest);
}

}  // namespace weft
