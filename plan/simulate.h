// Dry run of all stages of a schedule: proves that it ends under rendezvous sends (both ends must
// be at the transfer), and gives time, bubble and peak live activations. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/schedule.h"

namespace weft {

struct ActionSeconds {
  double forward_s = 1;
  double backward_s = 2;
  double transfer_s = 0;
};

struct Simulation {
  double makespan_s = 0;       // start to the last action of any stage
  double bubble_fraction = 0;  // share of stage-seconds without compute (idle or transfers)
  std::vector<int> peak_live;  // per stage: most microbatches held at once
  std::vector<double> busy_s;  // per stage: forward and backward passes
};

// `stages[i]` is stage i's action list; `seconds[i]` its durations (one entry: all stages alike).
// Internal error naming the stuck stages and actions if the schedules deadlock or disagree about a
// transfer. Reductions, norm and update take no time here; cost.h prices them.
absl::StatusOr<Simulation> Simulate(absl::Span<const std::vector<Action>> stages,
                                    absl::Span<const ActionSeconds> seconds);

// The makespan of StepSchedule on stages with these durations (one entry each), without a dry run:
// for the search, which asks thousands of times. Equal to Simulate's for GPipe; for 1F1B a bound
// from below, exact for equal stages, within 0.2 % for the even splits that layouts have and within
// 5 % for any others that the tests try. REQUIRES: at least one stage and microbatch.
double PipelineSeconds(ScheduleKind kind, absl::Span<const ActionSeconds> stages,
                       int64_t microbatches);

}  // namespace weft
