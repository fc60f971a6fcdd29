// StepSchedule makes the whole step of one rank: passes and transfers (schedule.h), the reductions
// that start inside them, norm, update and gathers. This list is priced, run dry and carried out.
// Pure.
#pragma once
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {

// The whole step of a rank of `model` on `stage`: WithTransfers(ComputeOrder), then reductions,
// norm, update and gathers. What has nobody to talk to is left out.
//
// A bucket's gradients are summed beside the passes that follow it: its kReduceGradients stands
// right after the last pass that adds to it (WithReductions of plan/schedule/stage_buckets.h) and
// starts inside that pass, as soon as the pass is through with the bucket. The sums are awaited
// before anything reads them. Weights that owners have updated are gathered, in the order in which
// passes take them, beside the first passes of the next step, which wait for each. A tied table
// that two stages hold is first summed over its copies.
//
// ZeRO 2 and 3 reduce a block's gradients inside its backward pass (under zb_h1 inside both
// halves), ZeRO 3 gathers its weights inside each pass: these are part of the pass, as the block
// is. Buckets that they do not cut (plan/shards/whole_places.h) are reduced and gathered as under
// ZeRO 1. REQUIRES: CheckLayout holds.
std::vector<Action> StepSchedule(const ModelShape& model, const Layout& layout, int stage);

}  // namespace weft
