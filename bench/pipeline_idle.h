// Idle time of a pipeline's stages, as it was in a traced step (worker/train/trace.h) and as a
// replay of the same passes through the same schedule says it has to be. What the first has more
// than the second is the engine's own: waking up, sending, whatever is not in the schedule.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/schedule/schedule.h"

namespace weft {

struct PipelineIdle {
  double step_s = 0;                    // from the first event to the last, of any stage
  double transfer_s = 0;                // median, from when both of its ends are there
  std::vector<double> measured_idle_s;  // by stage: between the first and the last pass of any
  std::vector<double> replayed_idle_s;  // stage, less its own passes
};

// `traces`: the file of each stage's rank. `schedules`: each stage's StepSchedule. DataLoss if a
// file is no trace of that schedule.
absl::StatusOr<PipelineIdle> FindPipelineIdle(absl::Span<const std::string> traces,
                                              absl::Span<const std::vector<Action>> schedules);

}  // namespace weft
