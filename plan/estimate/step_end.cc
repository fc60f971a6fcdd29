#include "plan/estimate/step_end.h"

#include <algorithm>
#include <cstdint>

#include "plan/estimate/collective.h"
#include "plan/estimate/data_comm.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/state_bytes.h"
#include "plan/memory/memory.h"
#include "plan/shards/shard.h"
#include "plan/spec/optimizer.h"

namespace weft {
namespace {

// A host that holds optimizer states gives each worker its link to the device, one way, and its
// memory: usual PCIe 4 x16 and a worker's share of a server's memory channels.
constexpr double kHostLinkBytesPerS = 22e9;
constexpr double kHostMemoryBytesPerS = 25e9;

// Returns what an update reads and writes per parameter, in bytes. The engine's figure is that of
// two moments in fp32, 16 of it; of 8-bit states the scales are next to nothing.
double UpdateBytes(const Question& question) {
  const double two_moments = question.engine.time.optimizer_bytes;
  // Gradients are read four times, and there are no moments of elements.
  if (question.numerics.optimizer == OptimizerStates::kFactored) {
    return std::max(4.0, two_moments - 4);
  }
  double state_bytes = 0;
  for (const StateArray& array : StateArrays(question.numerics.optimizer)) {
    if (array.form != StateForm::kScales) state_bytes += array.is_codes() ? 1 : 4;
  }
  return std::max(4.0, two_moments - 16 + 2 * state_bytes);
}

// The update of `updated` parameters whose states are offloaded, which takes `update_s` where they
// are on the device.
double OffloadedUpdateSeconds(const Question& question, const Machine& machine, double updated,
                              double update_s) {
  if (question.engine.memory.host_updates) {
    const double moved_bytes = SummedGradientBytes(question) + GatheredWeightBytes(question);
    // No host is taken for faster than the device that it saves the update: the search relies on
    // it.
    return std::max(update_s, updated * (moved_bytes / kHostLinkBytesPerS +
                                         UpdateBytes(question) / kHostMemoryBytesPerS));
  }
  const double bytes = updated * OffloadedBytes(question);
  // A CPU device copies at once: read and written, there and back.
  if (!machine.gpu) return update_s + 4 * bytes / machine.memory_bytes_per_s;
  // States come and go at once, a stretch each, and the device updates between; nothing leaves
  // while the first stretch comes.
  const double first = std::min(updated, static_cast<double>(kMostStagedElements));
  return update_s + (bytes + first * OffloadedBytes(question)) / kHostLinkBytesPerS;
}

// Adafactor's sums of squares by row and column, then two numbers of each tensor: over the ranks
// that hold parts of the same tensors, and to those that hold copies of them.
double FactorSeconds(const Machine& machine, const Layout& layout, const StageParameters& own) {
  const int world = layout.world_size();
  const PricedGroup tensor = GroupOf(machine, layout.tp, 1, world);
  const int parts = layout.zero_stage > 0 ? layout.zero_ranks() : 1;
  const PricedGroup shard = GroupOf(machine, parts, layout.tp, world);
  const PricedGroup replicas =
      GroupOf(machine, layout.data_group() / parts, layout.tp * parts, world);
  double sum_s = 0;
  for (const double bytes : {sizeof(float) * own.rows_and_columns, 0.0}) {
    if (parts > 1) sum_s += AllReduceSeconds(machine, shard, bytes);
    sum_s += AllReduceSeconds(machine, tensor, bytes) + AllReduceSeconds(machine, replicas, bytes);
  }
  return sum_s;
}

// Sums of the gradients of what several ranks hold: a table at both ends of the pipeline, and, of
// what each owns of them, kv heads and norms.
double CopySeconds(const Question& question, const Machine& machine, const Layout& layout,
                   int stage, const StageShare& share) {
  const ModelShape& model = question.model;
  const double gradient_bytes = SummedGradientBytes(question);
  const auto hidden = static_cast<double>(model.hidden_size);
  const int world = layout.world_size();
  double sum_s = 0;
  if (model.tied_embeddings && layout.pp > 1 && (stage == 0 || stage == layout.pp - 1)) {
    const double copy = LocalVocabulary(question, layout) * hidden;
    const PricedGroup ends = {.ranks = 2, .per_node = world <= machine.slots_per_node ? 2.0 : 1.0};
    sum_s += AllReduceSeconds(machine, ends, gradient_bytes * copy);
  }
  const auto blocks = static_cast<double>(StageBlockCount(layout, model.num_blocks, stage));
  // Fewer kv heads than tp: neighbours that hold copies of one sum its k and v gradients first.
  // ZeRO has cut them by then: of a block's run a rank owns a part.
  const int copies = KvHeadCopies(model, layout);
  if (copies > 1) {
    const PricedGroup holders = GroupOf(machine, copies, 1, world);
    double head = static_cast<double>(model.head_dim) * hidden;
    if (layout.zero_stage > 0 && question.engine.time.by_buckets) {
      head = std::min(head, share.block.all() / layout.zero_ranks());
    }
    sum_s += 2 * blocks * AllReduceSeconds(machine, holders, gradient_bytes * head);
  }
  // Each tp rank's norms have seen its own tokens, or its own heads: one sum each.
  if (!question.engine.time.by_buckets || layout.tp == 1) return sum_s;
  const PricedGroup tensor = GroupOf(machine, layout.tp, 1, world);
  if (layout.sequence_ranks() > 1) {
    // With their biases.
    const double norms = model.norm_vectors() * model.norms_of_block();
    sum_s += norms * blocks * AllReduceSeconds(machine, tensor, gradient_bytes * hidden);
  }
  if (model.qk_norms && !model.wide_qk_norms) {
    const auto head_dim = static_cast<double>(model.head_dim);
    sum_s += 2 * blocks * AllReduceSeconds(machine, tensor, gradient_bytes * head_dim);
  }
  return sum_s;
}

}  // namespace

StageDues::StageDues(const Question& question, const Machine& machine, const Layout& layout,
                     int stage, const StageShare& share)
    : comm(question, machine, layout, stage, share) {
  const TimeHabits& habits = question.engine.time;
  const double sharing = CoreSharing(question.cluster, layout.world_size());
  const StageParameters& own = share.own;
  const double trained = question.adapters ? own.adapters : own.all();
  const int world = layout.world_size();
  double& comm_s = after[TimeTerm::kDataComm];
  if (!question.adapters) comm_s += CopySeconds(question, machine, layout, stage, share);
  if (question.numerics.optimizer == OptimizerStates::kFactored)
    comm_s += FactorSeconds(machine, layout, own);
  const PricedGroup everyone = GroupOf(machine, world, 1, world);
  comm_s += AllReduceSeconds(machine, everyone, 3 * sizeof(double));  // norm, loss, stop
  // Experts are spread over ep ranks of the data group: fewer hold the same ones.
  const double owners = layout.zero_stage > 0 ? layout.zero_ranks() : 1;
  const double experts = question.adapters ? own.expert_adapters : own.experts;
  const double expert_owners = layout.zero_stage > 0 ? layout.expert_ranks(owners) : 1;
  const double updated = (trained - experts) / owners + experts / expert_owners;
  after[TimeTerm::kOptimizer] =
      sharing * UpdateBytes(question) * updated / machine.memory_bytes_per_s;
  offloaded_update_s =
      OffloadedUpdateSeconds(question, machine, updated, after[TimeTerm::kOptimizer]);
  after[TimeTerm::kOverhead] = sharing * habits.step_ops * machine.op_s;
}

StageDuesTable::Key::Key(const Layout& layout, int64_t blocks, bool first, bool last)
    : properties(layout),
      num_blocks(blocks),
      stage((layout.zero_stage > 0 ? 4 : 0) | (first ? 2 : 0) | (last ? 1 : 0)) {}

int64_t StageDuesTable::BlocksKey(const Layout& layout, int stage) const {
  const ModelShape& model = question_.model;
  const int64_t count = StageBlockCount(layout, model.num_blocks, stage);
  if (model.num_dense_blocks == 0) return count;
  constexpr int64_t kMoreThanBlocks = int64_t{1} << 20;
  return count + kMoreThanBlocks *
                     StageBlocksBefore(layout, model.num_blocks, stage, model.num_dense_blocks);
}

const StageDues& StageDuesTable::Of(const Layout& layout, int stage) {
  const Key key(layout, BlocksKey(layout, stage), stage == 0, stage == layout.pp - 1);
  Last& last = last_[static_cast<size_t>(key.stage) % last_.size()];
  if (last.key != nullptr && *last.key == key) return *last.dues;
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    if (entries_.size() == kMostEntries) {
      entries_.clear();
      last_ = {};
    }
    const StageShare share(question_, layout, stage);
    found = entries_.try_emplace(key, question_, machine_, layout, stage, share).first;
  }
  last_[static_cast<size_t>(key.stage) % last_.size()] = {&found->first, &found->second};
  return found->second;
}

absl::Span<const StageDues> StageDuesTable::OfWidths(const Layout& layout, int stage,
                                                     absl::Span<const int64_t> widths) {
  Layout own = layout;
  own.zero_stage = 1;
  own.zero_hpz_partition_size = 1;
  own.sequence_parallel = false;
  const Key key(own, BlocksKey(layout, stage), stage == 0, stage == layout.pp - 1);
  const auto found = by_width_.find(key);
  if (found != by_width_.end()) return found->second;
  if (by_width_.size() == kMostByWidth) by_width_.clear();
  std::vector<StageDues>& dues = by_width_[key];
  dues.reserve(widths.size());
  const StageShare share(question_, own, stage);
  for (const int64_t width : widths) {
    own.zero_hpz_partition_size = static_cast<int>(width);
    dues.emplace_back(question_, machine_, own, stage, share);
  }
  return dues;
}

TermSeconds StepEnd(const Layout& layout, int stage, const ActionSeconds& passes,
                    const StageDues& dues) {
  TermSeconds end = dues.after;
  if (layout.offloads_optimizer()) end[TimeTerm::kOptimizer] = dues.offloaded_update_s;
  end[TimeTerm::kDataComm] += dues.comm.EndSeconds(layout, stage, passes);
  return end;
}

double LeastStepEnd(const Layout& layout, const ActionSeconds& passes, const StageDues& dues) {
  const double update_s = dues.after.of(TimeTerm::kOptimizer);
  return dues.after.total_s() - std::max(0.0, update_s - dues.offloaded_update_s) +
         dues.comm.LeastEndSeconds(layout, passes);
}

}  // namespace weft
