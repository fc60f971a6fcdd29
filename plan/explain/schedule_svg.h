// Pictures of a pipeline schedule, from the simulator's timeline: every pass to scale, every gap a
// bubble. As text for a terminal, and as SVG. Pure.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "plan/estimate/question.h"
#include "plan/schedule/simulate.h"
#include "plan/spec/layout.h"

namespace weft {

// A dry run of `layout` with the estimated times of its passes, of so many microbatches that a
// picture can show them. REQUIRES: CheckLayout holds.
struct SchedulePicture {
  Layout layout;                            // gradient_accumulation_steps: those shown
  int64_t gradient_accumulation_steps = 0;  // all of a step
  Simulation simulation;
};
absl::StatusOr<SchedulePicture> DrawSchedule(const Question& question, const Layout& layout);

// One line per stage, at most `width` wide: digits are forward passes and letters backward passes
// of microbatches (last digit; a is 0), + weight gradients, . idle.
std::string ScheduleLines(const SchedulePicture& picture, int width);
std::string ScheduleSvg(const SchedulePicture& picture);

}  // namespace weft
