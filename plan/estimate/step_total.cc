// The whole step: passes of all microbatches, bubble, step end (step_estimate.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "plan/errors.h"
#include "plan/estimate/collective.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/step_estimate.h"
#include "plan/estimate/work.h"
#include "plan/schedule.h"

namespace weft {
namespace {

// Passes of one microbatch on one stage.
struct StageSeconds {
  double forward_s = 0;
  double backward_s = 0;
  double weight_gradient_s = 0;
  double cycle_s() const { return forward_s + backward_s; }
};

// The parts of the network on one layout, each priced once.
struct Parts {
  Parts(const Question& question, const Layout& layout)
      : embedding(EmbeddingPass(question, layout)), head(HeadPass(question, layout)) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      const auto kind = static_cast<size_t>(layout.recompute_of(stage));
      if (priced[kind]) continue;
      blocks[kind] = BlockPass(question, layout, layout.recompute_of(stage));
      priced[kind] = true;
      if (layout.stage_recompute.empty()) break;
    }
  }

  const PassCost& block(const Layout& layout, int stage) const {
    return blocks[static_cast<size_t>(layout.recompute_of(stage))];
  }

  PassCost embedding, head;
  std::array<PassCost, 3> blocks;  // by Recompute
  std::array<bool, 3> priced = {};
};

// A communication of which what fits into a window is hidden.
double Exposed(double comm_s, double window_s) {
  return std::max(0.0, comm_s - window_s);
}

StageSeconds SecondsOf(const PassCost& cost) {
  return {cost.forward.total_s(), cost.backward.total_s(), cost.weight_gradient_s};
}

void Add(double factor, const StageSeconds& part, StageSeconds& sum) {
  sum.forward_s += factor * part.forward_s;
  sum.backward_s += factor * part.backward_s;
  sum.weight_gradient_s += factor * part.weight_gradient_s;
}

// What a pipeline's closed forms need to know of its stages.
struct Pipeline {
  int slowest = 0;
  StageSeconds slowest_s;
  double sum_forward_s = 0, sum_backward_s = 0, sum_weight_gradient_s = 0;
  double most_forward_s = 0, most_backward_s = 0;
};

StageSeconds StageOf(const Question& question, const Layout& layout, const Parts& parts,
                     int stage) {
  const auto blocks =
      static_cast<double>(StageBlockCount(layout, question.model.num_blocks, stage));
  StageSeconds seconds;
  Add(blocks, SecondsOf(parts.block(layout, stage)), seconds);
  if (stage == 0) Add(1, SecondsOf(parts.embedding), seconds);
  if (stage == layout.pp - 1) Add(1, SecondsOf(parts.head), seconds);
  return seconds;
}

Pipeline PipelineOf(const Question& question, const Layout& layout, const Parts& parts) {
  Pipeline pipeline;
  for (int stage = 0; stage < layout.pp; ++stage) {
    const StageSeconds own = StageOf(question, layout, parts, stage);
    pipeline.sum_forward_s += own.forward_s;
    pipeline.sum_backward_s += own.backward_s;
    pipeline.sum_weight_gradient_s += own.weight_gradient_s;
    pipeline.most_forward_s = std::max(pipeline.most_forward_s, own.forward_s);
    pipeline.most_backward_s = std::max(pipeline.most_backward_s, own.backward_s);
    if (stage == 0 || own.cycle_s() > pipeline.slowest_s.cycle_s()) {
      pipeline.slowest = stage;
      pipeline.slowest_s = own;
    }
  }
  return pipeline;
}

// Idle time of the slowest stage: the other stages' passes of a first and a last microbatch, which
// it waits for (PTD-P, arXiv:2104.04473, 2.2; zero bubble, arXiv:2401.10241, 2.2).
double BubbleSeconds(const Layout& layout, const Pipeline& pipeline) {
  if (layout.pp == 1) return 0;
  const StageSeconds& own = pipeline.slowest_s;
  const double others_s = pipeline.sum_forward_s + pipeline.sum_backward_s - own.cycle_s();
  const double rounds = static_cast<double>(layout.num_microbatches) - 1;
  switch (layout.schedule) {
    case ScheduleKind::kGpipe:
      return others_s +
             rounds * (pipeline.most_forward_s + pipeline.most_backward_s - own.cycle_s());
    case ScheduleKind::kOneForwardOneBackward:
      return others_s;
    case ScheduleKind::kInterleaved:
      return others_s / layout.virtual_stages;
    case ScheduleKind::kZeroBubbleH1: {
      const double moved_s = 2 * (pipeline.sum_weight_gradient_s - own.weight_gradient_s);
      return std::max(0.0, others_s - moved_s);
    }
  }
  return others_s;
}

// Transfers on the slowest stage's path: it waits for each microbatch that it receives, and the
// first and the last microbatch cross every border.
double TransferSeconds(const Question& question, const Layout& layout) {
  if (layout.pp == 1) return 0;
  const double one_way_s = BoundarySeconds(question, layout);
  const auto microbatches = static_cast<double>(layout.num_microbatches);
  const double chunks = layout.virtual_stages;
  return 2 * one_way_s * (chunks * (microbatches - 1) + layout.pp - 1);
}

}  // namespace

TermSeconds StepEnd(const Question& question, const Layout& layout, int stage, double backward_s) {
  const Machine machine = MachineOf(question);
  const TimeHabits& habits = question.engine.time;
  const double sharing = CoreSharing(question.cluster, layout.world_size());
  const ParameterShare share = ParametersOf(question.model, layout);
  const StageParameters own = StageParametersOf(share, question.model, layout, stage);
  const int world = layout.world_size();
  const RankGroup data = GroupOf(machine, layout.data_group(), layout.tp, world);
  const RankGroup shard = GroupOf(machine, layout.zero_ranks(), layout.tp, world);
  TermSeconds end;
  double& comm_s = end[TimeTerm::kDataComm];
  const double gradient_bytes = habits.gradient_bytes * own.total();
  const double parameter_bytes = habits.parameter_bytes * own.total();
  if (layout.zero_stage == 0) {
    const double reduce_s = AllReduceSeconds(machine, data, gradient_bytes);
    comm_s += Exposed(reduce_s, habits.reduce_window * backward_s);
  } else {
    double reduce_s = ReduceScatterSeconds(machine, shard, gradient_bytes);
    if (layout.zero_ranks() < layout.data_group()) {
      // Groups that each hold all shards: the shard is summed across them.
      const int groups = layout.data_group() / layout.zero_ranks();
      const RankGroup across = GroupOf(machine, groups, layout.tp * layout.zero_ranks(), world);
      reduce_s += AllReduceSeconds(machine, across, gradient_bytes / layout.zero_ranks());
    }
    const double gather_s = AllGatherSeconds(machine, shard, parameter_bytes);
    const auto microbatches = static_cast<double>(layout.num_microbatches);
    if (layout.zero_stage < 3) {
      comm_s += Exposed(reduce_s, habits.reduce_window * backward_s);
      comm_s += Exposed(gather_s, habits.gather_window * backward_s / 2);
    } else {
      // Gathered for the forward pass under it, for the backward pass under it with the reduction.
      const double hidden_s = habits.reduce_window * backward_s;
      comm_s +=
          microbatches * (Exposed(gather_s, hidden_s / 2) + Exposed(gather_s + reduce_s, hidden_s));
    }
  }
  const bool holds_copy = share.tied_copy > 0 && (stage == 0 || stage == layout.pp - 1);
  const RankGroup ends = {.ranks = 2, .per_node = world <= machine.slots_per_node ? 2.0 : 1.0};
  if (holds_copy)
    comm_s += AllReduceSeconds(machine, ends, habits.gradient_bytes * share.tied_copy);
  const RankGroup everyone = GroupOf(machine, world, 1, world);
  comm_s += AllReduceSeconds(machine, everyone, 3 * sizeof(double));  // norm, loss, stop
  const double updated = own.total() / (layout.zero_stage > 0 ? layout.zero_ranks() : 1);
  end[TimeTerm::kOptimizer] =
      sharing * habits.optimizer_bytes * updated / machine.memory_bytes_per_s;
  end[TimeTerm::kOverhead] = sharing * habits.step_ops * machine.op_s;
  return end;
}

TermSeconds EstimateStep(const Question& question, const Layout& layout) {
  const Parts parts(question, layout);
  const Pipeline pipeline = PipelineOf(question, layout, parts);
  const auto microbatches = static_cast<double>(layout.num_microbatches);
  const int slowest = pipeline.slowest;
  const auto blocks =
      static_cast<double>(StageBlockCount(layout, question.model.num_blocks, slowest));
  TermSeconds step;
  const auto add = [&](double factor, const PassCost& part) {
    step += (factor * microbatches) * part.forward;
    step += (factor * microbatches) * part.backward;
  };
  add(blocks, parts.block(layout, slowest));
  if (slowest == 0) add(1, parts.embedding);
  if (slowest == layout.pp - 1) add(1, parts.head);
  step[TimeTerm::kBubble] = BubbleSeconds(layout, pipeline);
  step[TimeTerm::kPipelineComm] = TransferSeconds(question, layout);
  // The first stage's reductions come last: its backward pass ends the pipeline.
  TermSeconds end = StepEnd(question, layout, 0, pipeline.slowest_s.backward_s);
  if (layout.pp > 1) {
    const TermSeconds last =
        StepEnd(question, layout, layout.pp - 1, pipeline.slowest_s.backward_s);
    if (last.total_s() > end.total_s()) end = last;
  }
  step += end;
  const double ranks = layout.world_size();
  step[TimeTerm::kStragglers] =
      question.engine.time.straggler_sigma * std::sqrt(2 * std::log(ranks)) * step.total_s();
  return step;
}

absl::StatusOr<TermSeconds> ReplayStep(const Question& question, const Layout& layout) {
  return EstimateStep(question, layout);
}

}  // namespace weft
