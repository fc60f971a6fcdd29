// StepReport says what one step came to: the trainer makes it, metrics.jsonl and the coordinator
// are told it. Pure values.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "plan/schedule/step_part.h"

namespace weft {

// Loss and norm are the same on every rank.
struct StepReport {
  int64_t step = 0;
  double loss = 0;       // mean over the counted tokens of the global batch
  double grad_norm = 0;  // before clipping
  double lr = 0;
  int64_t tokens = 0;
  double step_s = 0;
  // Times are this rank's own; nullopt where the device works on behind the host's clock.
  std::optional<PartSeconds> parts = {};
  std::optional<double> valid_loss;
  bool stopping = false;      // all ranks agreed to save and stop after this step
  bool saving = false;        // all ranks agreed to save after this step, and to go on
  bool away = false;          // for some rank the coordinator is away
  bool skipped = false;       // loss or norm is not finite: no weight and no state has changed
  int64_t skipped_steps = 0;  // of the run so far
  // Rank 0 says here, once it has written its line, why lines of metrics.jsonl wait in memory.
  std::string not_written = {};
  double loss_scale = 0;  // that the step was computed with; 0: fp32 and bf16, which have none
};

}  // namespace weft
