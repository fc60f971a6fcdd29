// Bounds from below on a layout's step time, in constant time: one stage's term of the schedule's
// closed form (plan/schedule/simulate.h takes the largest over all stages), for the first and for
// the last stage, and for the one before that where it may be the slowest. Pure.
#pragma once
#include <cstdint>
#include <optional>

#include "plan/estimate/step_estimate.h"
#include "plan/search/balance.h"
#include "plan/search/space.h"
#include "plan/spec/layout.h"

namespace weft {

// One microbatch through a part of the network.
struct PassSeconds {
  double forward_s = 0;
  double backward_s = 0;
  double weight_gradient_s = 0;  // of backward_s

  double total_s() const { return forward_s + backward_s; }
};
PassSeconds SumOf(const PassCost& cost);

// A pipeline, its blocks split evenly or, for choices that ask for it, as `balanced`.
struct Pipeline {
  int stages = 1;
  int64_t num_blocks = 1;
  int64_t dense_blocks = 0;  // of them, at the beginning, which may take less than `block`
  int64_t microbatches = 1;
  PassSeconds block = {}, embedding = {}, head = {};
  double transfer_s = 0;
  PassSeconds first_waits = {}, last_waits = {};  // in passes of these stages; one stage: the first
  std::optional<Split> balanced = {};             // REQUIRED for choices that ask for it
  bool uneven = false;        // stages are given otherwise: only the mean of them is known
  bool shares_cores = false;  // a stage that waits leaves its core to others: no idle time is sure
};

// At most the passes of any split of `num_blocks` under any schedule, embedding and head left out.
// Never less with fewer stages. The fullest stage has the mean, rounded up, or more. No backward
// pass starts before the first microbatch has gone through all blocks, and when the last has,
// every forward pass is done and its gradient has to go all the way back.
double LeastSecondsOfAnySplit(int stages, int64_t num_blocks, int64_t microbatches,
                              const PassSeconds& block, bool shares_cores);

inline double LeastSecondsOfAnySplit(const Pipeline& pipeline) {
  return LeastSecondsOfAnySplit(pipeline.stages, pipeline.num_blocks - pipeline.dense_blocks,
                                pipeline.microbatches, pipeline.block, pipeline.shares_cores);
}

// At most the passes of any split for a single microbatch, embedding and head included: all of them
// one after the other. Under zb_h1 the last weight gradient is that of a stage of one block or
// more.
double LeastSecondsOfLoneSplits(const Pipeline& pipeline, ScheduleKind kind);

// Returns a bound from below on the passes of what differs from a layout with `passes_s` by the
// split of its blocks. It is proven for pipelines of few stages. Of longer ones no split is known
// to be faster than the better of even and balanced by more than rounding, and the proven bound
// would leave too much open. So it is for a single microbatch, whatever the number of stages.
double LeastSecondsOfShapes(const Pipeline& pipeline, const ScheduleChoice& choice,
                            double passes_s);

// The balanced split, if its slowest stage takes less than the even split's.
std::optional<Split> BetterSplit(const Pipeline& pipeline);

// Passes of the stages that bounds look at. The one before the last is `inner`, if it may take
// longer than both ends: an even split gives the first stage as many blocks.
struct EndPasses {
  PassSeconds first, inner, last, all;
  bool has_inner = false;
};

// At most EstimateStep's passes, bubble and transfers of any layout of a pipeline, by choice. Keeps
// what choices share.
class LeastPasses {
 public:
  // Borrows it.
  explicit LeastPasses(const Pipeline& pipeline);
  double Of(const ScheduleChoice& choice);

 private:
  void SetEnds(const ScheduleChoice& choice);

  const Pipeline& pipeline_;
  EndPasses ends_;
  std::optional<Split> split_;  // of ends_
};

}  // namespace weft
