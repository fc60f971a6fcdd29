// This file tells how long the passes of a step take, for the search, which asks thousands of
// times: from closed forms, or from a dry run of as few microbatches as tell the rest.
// plan/schedule/simulate.h runs them all. Pure.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/schedule/schedule.h"
#include "plan/schedule/simulate.h"

namespace weft {

// The makespan of StepSchedule on stages with these durations (one entry each, of any one of its
// `chunks`), without a dry run: for the search, which asks thousands of times. A bound from below:
//   gpipe        Simulate's makespan
//   1f1b         exact for equal stages, within 0.2 % for the even splits that layouts have
//   interleaved  exact for equal stages without transfers: the bubble is (p-1)(F+B)/v
//   zb_h1        exact for equal stages without transfers with W <= F and W <= B, the halves of
//                backward: with p or more microbatches the bubble is (p-1)(F+B-W)
// For any others that the tests try 1f1b is within 5 %, zb_h1 within 10 %, interleaved within 15 %.
// REQUIRES: at least one stage and microbatch.
double PipelineSeconds(ScheduleKind kind, absl::Span<const ActionSeconds> stages,
                       int64_t microbatches, int chunks = 1);

// The makespan of StepSchedule as Simulate has it, to a relative 1e-9 where the tests compare them.
// With many microbatches a pipeline falls into step: a round of one microbatch per stage takes as
// long as the one before. A dry run of the rounds until then is continued at that pace. `chunks`:
// an entry per virtual stage (chunk * stages + stage). Internal error as Simulate's.
// REQUIRES: CheckLayout's rules for `kind` hold; at least two stages; one microbatch.
absl::StatusOr<double> DryRunSeconds(ScheduleKind kind, int stages,
                                     absl::Span<const ActionSeconds> chunks, int64_t microbatches);

}  // namespace weft
