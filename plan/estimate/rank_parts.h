// A predicted step as one rank's clock would tell it: what the terms of step_estimate.h are held
// against once the step has run. Pure.
#pragma once
#include "plan/estimate/question.h"
#include "plan/estimate/step_estimate.h"
#include "plan/schedule/step_part.h"
#include "plan/spec/layout.h"

namespace weft {

// Returns the seconds of a rank of `stage` in a step of `time` (of this layout). Passes are this
// stage's own; transfers hold whatever the stage waits while slower ones work. The parts sum to the
// step less its stragglers. REQUIRES: as EstimateStep; 0 <= stage < layout.pp.
PartSeconds RankPartsOf(const Question& question, const Layout& layout, int stage,
                        const TermSeconds& time);

}  // namespace weft
