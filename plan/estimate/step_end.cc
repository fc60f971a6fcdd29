// What follows the pipeline: reductions, gathers, the optimizer (step_estimate.h).
#include <algorithm>

#include "plan/estimate/collective.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/state_bytes.h"
#include "plan/estimate/step_estimate.h"
#include "plan/memory.h"
#include "plan/shard.h"

namespace weft {
namespace {

// Of a host that holds optimizer states, per worker: its link to the device, one way, and its
// memory. Usual PCIe 4 x16 and a worker's share of a server's memory channels.
constexpr double kHostLinkBytesPerS = 22e9;
constexpr double kHostMemoryBytesPerS = 25e9;

// A communication of which what fits into a window is hidden; the last bucket never is.
double Exposed(const TimeHabits& habits, double comm_s, double window_s) {
  constexpr double kLastBucket = 0.02;
  const double hidden_s = std::min((1 - kLastBucket) * comm_s, window_s);
  return comm_s - hidden_s + habits.overlap_slowdown * hidden_s;
}

// Collectives run beside compute where there is room for them: a GPU has units to spare, workers on
// processors need a core that no worker computes on.
double ReduceWindow(const Question& question, const Machine& machine, int world) {
  const int workers = std::min(world, machine.slots_per_node);
  const bool has_room = machine.gpu || question.cluster.cores_per_node > workers;
  return has_room ? question.engine.time.reduce_window : 0;
}

// Buffers that the optimizer keeps per parameter, in bytes read and written beside them.
double UpdateBytes(const Question& question) {
  const double two_moments = question.engine.time.optimizer_bytes;
  switch (question.optimizer) {
    case OptimizerStates::kNone:
      return std::max(4.0, two_moments - 16);
    case OptimizerStates::kMomentum:
    case OptimizerStates::kOneMoment:
      return std::max(4.0, two_moments - 8);
    case OptimizerStates::kTwoMoments:
      return two_moments;
    case OptimizerStates::kTwoMoments8Bit:
      return std::max(4.0, two_moments - 12);
    case OptimizerStates::kFactored:  // gradients four times, and no moments of elements
      return std::max(4.0, two_moments - 4);
  }
  return two_moments;
}

// The update of `updated` parameters whose states are offloaded, which takes `update_s` where they
// are on the device.
double OffloadedUpdateSeconds(const Question& question, const Machine& machine, double updated,
                              double update_s) {
  const TimeHabits& habits = question.engine.time;
  if (question.engine.memory.host_updates) {
    return updated * ((habits.gradient_bytes + habits.parameter_bytes) / kHostLinkBytesPerS +
                      UpdateBytes(question) / kHostMemoryBytesPerS);
  }
  const double bytes = updated * OffloadedBytes(question);
  // A CPU device copies at once: read and written, there and back.
  if (!machine.gpu) return update_s + 4 * bytes / machine.memory_bytes_per_s;
  // States come and go at once, a stretch each, and the device updates between; nothing leaves
  // while the first stretch comes.
  const double first = std::min(updated, static_cast<double>(kMostStagedElements));
  return update_s + (bytes + first * OffloadedBytes(question)) / kHostLinkBytesPerS;
}

// The data axis of one layout.
struct DataAxis {
  DataAxis(const Machine& asked, const Layout& cut)
      : machine(asked),
        layout(cut),
        data(GroupOf(asked, cut.data_group(), cut.tp, cut.world_size())),
        shard(GroupOf(asked, cut.zero_ranks(), cut.tp, cut.world_size())) {}

  // Gradients to all ranks (ZeRO 0), or to the ranks that own them, in buckets.
  double ReduceSeconds(const TimeHabits& habits, double bytes) const {
    if (bytes <= 0) return 0;
    const double buckets = std::max(1.0, bytes / habits.bucket_bytes);
    return buckets * ReduceBucketSeconds(habits, bytes / buckets);
  }

  // Parameters to all ranks of a shard's group.
  double GatherSeconds(const TimeHabits& habits, double bytes) const {
    if (bytes <= 0) return 0;
    const double buckets = std::max(1.0, bytes / habits.bucket_bytes);
    return buckets * AllGatherSeconds(machine, shard, bytes / buckets);
  }

  double ReduceBucketSeconds(const TimeHabits& habits, double bytes) const {
    if (layout.zero_stage == 0) return AllReduceSeconds(machine, data, bytes);
    double reduce_s = habits.zero_all_reduces ? AllReduceSeconds(machine, shard, bytes)
                                              : ReduceScatterSeconds(machine, shard, bytes);
    if (layout.zero_ranks() < layout.data_group()) {
      // Groups that each hold all shards: a shard is summed across them.
      const int groups = layout.data_group() / layout.zero_ranks();
      const int stride = layout.tp * layout.zero_ranks();
      const RankGroup across = GroupOf(machine, groups, stride, layout.world_size());
      reduce_s += AllReduceSeconds(machine, across, bytes / layout.zero_ranks());
    }
    return reduce_s;
  }

  // Adafactor's sums of squares by row and column, then two numbers of each tensor: over the ranks
  // that hold parts of the same tensors, and to those that hold copies of them.
  double FactorSeconds(const StageParameters& own) const {
    const RankGroup tensor = GroupOf(machine, layout.tp, 1, layout.world_size());
    const int parts = layout.zero_stage > 0 ? layout.zero_ranks() : 1;
    const RankGroup replicas =
        GroupOf(machine, layout.data_group() / parts, layout.tp * parts, layout.world_size());
    double sum_s = 0;
    for (const double bytes : {sizeof(float) * own.rows_and_columns, 0.0}) {
      if (parts > 1) sum_s += AllReduceSeconds(machine, shard, bytes);
      sum_s +=
          AllReduceSeconds(machine, tensor, bytes) + AllReduceSeconds(machine, replicas, bytes);
    }
    return sum_s;
  }

  const Machine& machine;
  const Layout& layout;
  RankGroup data, shard;
};

// What is exposed of a step's reductions and gathers over the data axis.
double DataSeconds(const Question& question, const DataAxis& axis, const StageParameters& own,
                   double forward_s, double backward_s) {
  const TimeHabits& habits = question.engine.time;
  const Layout& layout = axis.layout;
  const double trained = question.adapters ? own.adapters : own.all();
  const double whole = own.whole_dense + own.whole_experts;
  const double reduce_s = axis.ReduceSeconds(habits, habits.gradient_bytes * (trained - whole));
  const double reduce_whole_s = axis.ReduceSeconds(habits, habits.gradient_bytes * whole);
  const double reduce_window = ReduceWindow(question, axis.machine, layout.world_size());
  const double window_s = reduce_window * backward_s;
  const auto gather_s = [&](double parameters) {
    return axis.GatherSeconds(habits, habits.parameter_bytes * parameters);
  };
  const auto gather_updated_s = [&](double parameters) {
    return Exposed(habits, gather_s(parameters), habits.gather_window * forward_s);
  };
  if (layout.zero_stage < 2) {
    const double gather_all_s = layout.zero_stage == 1 ? gather_updated_s(trained) : 0;
    return Exposed(habits, reduce_s, window_s) + gather_all_s;
  }
  // What a microbatch's backward pass made is reduced under it; under the last one's also what is
  // whole. That in a pipeline the other stages' waits lengthen the ways of the first and of the
  // last microbatch is left out.
  const auto passes = static_cast<double>(layout.num_microbatches);
  const bool halves = layout.schedule == ScheduleKind::kZeroBubbleH1;  // each is reduced
  const double scatter_s = (halves ? 2 : 1) * reduce_s;
  if (layout.zero_stage == 2) {
    return (passes - 1) * Exposed(habits, scatter_s, window_s) +
           Exposed(habits, scatter_s + reduce_whole_s, window_s) + gather_updated_s(trained);
  }
  // Gathered for the forward pass under it, for the backward pass under it with the reduction. That
  // what still lies in its place is not gathered again is left out.
  const double cut_s = gather_s(own.all() - whole);
  return passes * Exposed(habits, cut_s, reduce_window * forward_s) +
         (passes - 1) * Exposed(habits, cut_s + scatter_s, window_s) +
         Exposed(habits, cut_s + scatter_s + reduce_whole_s, window_s) + gather_updated_s(whole);
}

// Sums of the gradients of what several ranks hold: a table at both ends of the pipeline, kv heads.
double CopySeconds(const Question& question, const Machine& machine, const Layout& layout,
                   int stage) {
  const ModelShape& model = question.model;
  const double gradient_bytes = question.engine.time.gradient_bytes;
  const int world = layout.world_size();
  double sum_s = 0;
  if (model.tied_embeddings && layout.pp > 1 && (stage == 0 || stage == layout.pp - 1)) {
    const double copy = LocalVocabulary(question, layout) * static_cast<double>(model.hidden_size);
    const RankGroup ends = {.ranks = 2, .per_node = world <= machine.slots_per_node ? 2.0 : 1.0};
    sum_s += AllReduceSeconds(machine, ends, gradient_bytes * copy);
  }
  // Fewer kv heads than tp: neighbours that hold copies of one sum its k and v gradients first.
  const int copies = KvHeadCopies(model, layout);
  if (copies > 1) {
    const RankGroup holders = GroupOf(machine, copies, 1, world);
    const double head = static_cast<double>(model.head_dim * model.hidden_size);
    sum_s += 2 * static_cast<double>(StageBlockCount(layout, model.num_blocks, stage)) *
             AllReduceSeconds(machine, holders, gradient_bytes * head);
  }
  return sum_s;
}

}  // namespace

TermSeconds StepEnd(const Question& question, const Layout& layout, int stage, double forward_s,
                    double backward_s) {
  const Machine machine = MachineOf(question);
  const TimeHabits& habits = question.engine.time;
  const double sharing = CoreSharing(question.cluster, layout.world_size());
  const StageParameters own = ParametersOf(question, layout, stage);
  const double trained = question.adapters ? own.adapters : own.all();
  const int world = layout.world_size();
  const DataAxis axis(machine, layout);
  TermSeconds end;
  double& comm_s = end[TimeTerm::kDataComm];
  comm_s = DataSeconds(question, axis, own, forward_s, backward_s);
  if (!question.adapters) comm_s += CopySeconds(question, machine, layout, stage);
  if (question.optimizer == OptimizerStates::kFactored) comm_s += axis.FactorSeconds(own);
  const RankGroup everyone = GroupOf(machine, world, 1, world);
  comm_s += AllReduceSeconds(machine, everyone, 3 * sizeof(double));  // norm, loss, stop
  // Experts are spread over ep ranks of the data group: fewer hold the same ones.
  const double owners = layout.zero_stage > 0 ? layout.zero_ranks() : 1;
  const double experts = question.adapters ? 0 : own.experts;
  const double updated = (trained - experts) / owners + experts / std::max(1.0, owners / layout.ep);
  end[TimeTerm::kOptimizer] =
      sharing * UpdateBytes(question) * updated / machine.memory_bytes_per_s;
  if (layout.offload_optimizer) {
    end[TimeTerm::kOptimizer] =
        OffloadedUpdateSeconds(question, machine, updated, end[TimeTerm::kOptimizer]);
  }
  end[TimeTerm::kOverhead] = sharing * habits.step_ops * machine.op_s;
  return end;
}

}  // namespace weft
