// Bounds from below on a layout's step time, in constant time: one stage's term of the schedule's
// closed form (plan/simulate.h takes the largest over all stages), for the first and for the last
// stage of an even split. Pure.
#pragma once
#include <cstdint>

#include "plan/estimate/step_estimate.h"
#include "plan/layout.h"
#include "plan/search/space.h"

namespace weft {

// One microbatch through a part of the network.
struct PassSeconds {
  double forward_s = 0;
  double backward_s = 0;
  double weight_gradient_s = 0;  // of backward_s

  double total_s() const { return forward_s + backward_s; }
};
PassSeconds SumOf(const PassCost& cost);

// A pipeline of `stages` even stages.
struct EvenPipeline {
  int stages = 1;
  int64_t num_blocks = 1;
  int64_t microbatches = 1;
  PassSeconds block, embedding, head;
  double transfer_s = 0;
  bool uneven = false;        // stages are not an even split: only the mean of them is known
  bool shares_cores = false;  // a stage that waits leaves its core to others: no idle time is sure
};

// At most EstimateStep's passes, bubble and transfers of any layout of this pipeline under
// `choice`.
double LeastPassesSeconds(const EvenPipeline& pipeline, const ScheduleChoice& choice);

// At least the forward and the backward seconds of any stage: what communication may hide behind.
PassSeconds MostOfAStage(const EvenPipeline& pipeline, const ScheduleChoice& choice);

}  // namespace weft
