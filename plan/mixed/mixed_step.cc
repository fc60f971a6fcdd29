#include "plan/mixed/mixed_step.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "plan/errors.h"
#include "plan/schedule/makespan.h"

namespace weft {
namespace {

double CycleOf(const ActionSeconds& stage) {
  return stage.forward_s + stage.backward_s;
}

// Whether `stage` takes as long as the one before it, whatever it waits for.
bool IsLikeTheOneBefore(const Layout& layout, absl::Span<FleetPart* const> part_of_stage,
                        int stage) {
  if (stage < 2 || stage == layout.pp - 1) return false;
  const auto index = static_cast<size_t>(stage);
  return part_of_stage[index] == part_of_stage[index - 1] && !MovesInPasses(layout) &&
         part_of_stage[index]->question().model.num_dense_blocks == 0 &&
         layout.layers_per_stage[index] == layout.layers_per_stage[index - 1] &&
         layout.recompute_of(stage) == layout.recompute_of(stage - 1);
}

// All stages, with the transfer that the slowest border makes everybody wait for.
std::vector<ActionSeconds> StagesOf(const Layout& layout,
                                    absl::Span<FleetPart* const> part_of_stage) {
  std::vector<ActionSeconds> stages;
  double slowest_forward_s = 0;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    stages.push_back(IsLikeTheOneBefore(layout, part_of_stage, stage)
                         ? stages.back()
                         : part_of_stage[index]->StageSeconds(layout, stage));
    slowest_forward_s = std::max(slowest_forward_s, stages.back().forward_s);
  }
  double transfer_s = 0;
  for (int stage = 0; layout.pp > 1 && stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    if (stage > 0 && part_of_stage[index] == part_of_stage[index - 1]) continue;
    transfer_s =
        std::max(transfer_s, part_of_stage[index]->BorderSeconds(layout, slowest_forward_s));
  }
  for (ActionSeconds& stage : stages) stage.transfer_s = transfer_s;
  return stages;
}

MixedStep Completed(const Layout& layout, absl::Span<FleetPart* const> part_of_stage,
                    absl::Span<const ActionSeconds> stages, double passes_s) {
  MixedStep step{.passes_s = passes_s};
  for (int stage = 0; stage < layout.pp; ++stage) {
    const auto index = static_cast<size_t>(stage);
    step.busy_s.push_back(static_cast<double>(layout.gradient_accumulation_steps) *
                          CycleOf(stages[index]));
    if (IsLikeTheOneBefore(layout, part_of_stage, stage)) continue;
    step.end_s = std::max(step.end_s, part_of_stage[index]->EndSeconds(layout, stage));
  }
  const double sigma = part_of_stage.front()->question().engine.time.straggler_sigma;
  const double spread = sigma * std::sqrt(2 * std::log(static_cast<double>(layout.world_size())));
  step.total_s = (1 + spread) * (step.passes_s + step.end_s);
  return step;
}

}  // namespace

MixedStep EstimateMixed(const Layout& layout, absl::Span<FleetPart* const> part_of_stage) {
  const std::vector<ActionSeconds> stages = StagesOf(layout, part_of_stage);
  const double passes_s =
      layout.pp == 1
          ? static_cast<double>(layout.gradient_accumulation_steps) * CycleOf(stages.front())
          : PipelineSeconds(layout.pp_schedule, stages, layout.gradient_accumulation_steps);
  return Completed(layout, part_of_stage, stages, passes_s);
}

absl::StatusOr<MixedStep> ReplayMixed(const Layout& layout,
                                      absl::Span<FleetPart* const> part_of_stage) {
  if (layout.pp == 1) return EstimateMixed(layout, part_of_stage);
  const std::vector<ActionSeconds> stages = StagesOf(layout, part_of_stage);
  double passes_s = 0;
  ASSIGN_OR_RETURN(passes_s, DryRunSeconds(layout.pp_schedule, layout.pp, stages,
                                           layout.gradient_accumulation_steps));
  return Completed(layout, part_of_stage, stages, passes_s);
}

}  // namespace weft
