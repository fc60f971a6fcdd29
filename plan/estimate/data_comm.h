// DataComm: what a stage moves over the data axis and what it waits for of that: gradients to their
// sums, weights to those that use them, beside passes and after them (worker/state/zero.h). Pure.
#pragma once
#include "plan/estimate/collective.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/question.h"
#include "plan/estimate/state_bytes.h"
#include "plan/schedule/simulate.h"
#include "plan/spec/layout.h"

namespace weft {

// Whether collectives over the data axis are part of passes: those of ZeRO 2 and 3.
bool MovesInPasses(const Layout& layout);

// Bytes of a parameter's gradient as it is summed over copies of the same tensor, as it is reduced
// over data ranks (training.reduce_dtype), and of its weight as it is gathered. In 16 or 8 bits the
// engine's habits; in fp32 all have 4.
double SummedGradientBytes(const Question& question);
double ReducedGradientBytes(const Question& question);
double GatheredWeightBytes(const Question& question);

class DataComm {
 public:
  // Borrows the question's habits. Depends on the layout's degrees, on whether ZeRO cuts anything
  // and on the width of its groups, not on its stage from 1 on, batch cut, schedule and recompute:
  // those are asked of the layouts below, which share the former.
  // `share`: the stage's.
  DataComm(const Question& question, const Machine& machine, const Layout& layout, int stage,
           const StageShare& share);

  // Returns the seconds that a microbatch's passes on `stage` wait, in the mean over a step, beyond
  // what `passes`, without any wait, hide. `stage`: that of the constructor or one that holds as
  // much. EndSeconds has the waits of the last microbatch's last pass: with the sums that end there
  // they may be more. 0 unless MovesInPasses.
  ActionSeconds PassWaits(const Layout& layout, int stage, const ActionSeconds& passes) const;

  // After the last pass: the sums that it does not hide, and what is gathered after the update and
  // the first forward pass of the next step does not hide.
  double EndSeconds(const Layout& layout, int stage, const ActionSeconds& passes) const;

  // At most that, at any stage of ZeRO from 1 on. REQUIRES: made for such a stage.
  double LeastEndSeconds(const Layout& layout, const ActionSeconds& passes) const;

 private:
  // Seconds that a bucket's collectives take, by themselves.
  struct Moves {
    double gather_s = 0;   // weights, of their parts
    double scatter_s = 0;  // gradients: each part to its owners
    double across_s = 0;   // a part's sum over the groups of ranks that each hold all parts
    double narrow_s = 0;   // rounding before the sums and widening after them, on the device

    double reduce_s() const { return scatter_s + across_s; }
  };
  // A bucket with an end of the network.
  struct End {
    bool held = false;
    bool late = false;  // nothing is left to compute when its gradient is there
    Moves moves = {};
  };

  // Turns are the shares of a stage's forward passes, and of its backward passes, that begin where
  // the pass before ended.
  struct Turns {
    double forward = 0, backward = 0;
  };
  // Holds the groups that parameters of a stage move between, while the moves are priced.
  struct Axis {
    const Question& question;
    const Machine& machine;
    const Layout& layout;
    const StageShare& share;
    double blocks;  // of the stage
    PricedGroup data, shard, across;
  };

  void TakeBuckets(const Axis& axis, int stage);
  void TakePool(const Axis& axis);
  static Turns TurnsOf(const Layout& layout, int stage);
  static Moves MovesOf(const Axis& axis, double summed_parameters, double gathered_parameters);
  static double GatherSeconds(const Axis& axis, double parameters);
  static double ReduceSeconds(const Axis& axis, const PricedGroup& group, double bytes);
  double Exposed(double comm_s, double window_s, double last_share) const;
  // The same of weights that are gathered after an update.
  double ExposedGather(double gather_s, const ActionSeconds& passes) const;
  // Returns the waits of a microbatch; `last`: of the step's last one.
  ActionSeconds WaitsOfOne(const Layout& layout, const Turns& turns, const ActionSeconds& passes,
                           bool last) const;

  // Whether passes gather weights.
  static bool Gathers(const Layout& layout) {
    return layout.zero_stage == 3 && MovesInPasses(layout);
  }

  const TimeHabits* habits_;
  double reduce_window_ = 0;  // share of passes behind which collectives run
  double gather_window_ = 0;  // the same of the first forward pass, after an update
  double last_share_ = 0;     // of the sums of a step: what is left when the passes are over
  // Buckets of blocks, all alike: so many, so many of them that passes gather and scatter, and of
  // these so many that still lie in their place where a pass turns back where another ended.
  double blocks_ = 1, cut_ = 0, kept_ = 0;
  Moves block_;
  double pass_gather_s_ = 0;   // of a block's weights, frozen ones as well
  double pass_scatter_s_ = 0;  // of a block's gradients
  bool ends_cut_ = false;
  End embedding_, head_;
  double narrow_s_ = 0;               // of all buckets, once
  double beside_s_ = 0, late_s_ = 0;  // all sums that may run beside the last pass, and the others
  double gather_s_ = 0;               // of all weights, after the update
  double first_gather_s_ = 0;         // of those that the next step takes first
};

}  // namespace weft
