// How long a step takes on devices of several kinds: the terms of plan/estimate/step_estimate.h,
// with each stage priced on the part that it lies on. Pure.
#pragma once
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/mixed/fleet_part.h"
#include "plan/spec/layout.h"

namespace weft {

struct MixedStep {
  double passes_s = 0;
  double end_s = 0;                 // reductions and the update of the stage that takes longest
  double total_s = 0;               // with stragglers
  std::vector<double> busy_s = {};  // of each stage: all its microbatches
};

// EstimateMixed takes closed forms, bounds from below; ReplayMixed a dry run of the schedule.
// `part_of_stage`: the part that holds each stage. REQUIRES: layers_per_stage is set.
MixedStep EstimateMixed(const Layout& layout, absl::Span<FleetPart* const> part_of_stage);
absl::StatusOr<MixedStep> ReplayMixed(const Layout& layout,
                                      absl::Span<FleetPart* const> part_of_stage);

}  // namespace weft
