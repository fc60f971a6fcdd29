#include "plan/estimate/step_estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <vector>

#include "absl/types/span.h"
#include "plan/errors.h"
#include "plan/estimate/data_comm.h"
#include "plan/schedule/makespan.h"
#include "plan/schedule/schedule.h"

namespace weft {
namespace {

ActionSeconds SecondsOf(const PassCost& cost) {
  return {.forward_s = cost.forward.total_s(),
          .backward_s = cost.backward.total_s(),
          .transfer_s = 0,
          .weight_gradient_s = cost.weight_gradient_s};
}

double CycleSeconds(const ActionSeconds& stage) {
  return stage.forward_s + stage.backward_s;
}

// A microbatch through all chunks of each stage, with what its passes wait for.
class Stages {
 public:
  Stages(const Question& question, const Layout& layout, const NetworkSeconds& seconds,
         StageDuesTable& dues) {
    if (layout.pp > static_cast<int>(few_.size())) many_.resize(static_cast<size_t>(layout.pp));
    const absl::Span<ActionSeconds> stages =
        many_.empty() ? absl::MakeSpan(few_.data(), static_cast<size_t>(layout.pp))
                      : absl::MakeSpan(many_);
    const EvenBlockCounts even(question.model.num_blocks, layout.pp, layout.virtual_stages);
    const bool listed = !layout.layers_per_stage.empty();
    const bool waits = MovesInPasses(layout);
    int64_t before = 0;
    int64_t dense_before = 0;
    const StageDues* due = nullptr;  // of the stage before, if passes wait
    for (int stage = 0; stage < layout.pp; ++stage) {
      const auto index = static_cast<size_t>(stage);
      const int64_t count = listed ? layout.layers_per_stage[index] : even.Of(stage);
      const int64_t dense =
          seconds.dense_blocks == 0
              ? 0
              : StageBlocksBefore(layout, question.model.num_blocks, stage, seconds.dense_blocks);
      ActionSeconds& own = stages[index];
      const bool inner = stage > 1 && stage < layout.pp - 1;
      const bool holds_as_much = inner && count == before && dense == dense_before;
      if (holds_as_much && !waits && layout.recompute_of(stage) == layout.recompute_of(stage - 1)) {
        own = stages[index - 1];
        continue;
      }
      before = count;
      dense_before = dense;
      own = seconds.Of(layout, stage, static_cast<double>(count), dense, stage == 0,
                       stage == layout.pp - 1);
      if (waits) {
        if (!holds_as_much) due = &dues.Of(layout, stage);
        NetworkSeconds::Add(due->comm.PassWaits(layout, stage, own), own);
      }
      if (CycleSeconds(own) > CycleSeconds(stages[static_cast<size_t>(slowest_)])) slowest_ = stage;
    }
    stages_ = stages;
  }
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  int slowest() const { return slowest_; }
  // Returns how long a microbatch waits in the passes of the slowest stage.
  double slowest_waits_s(const Layout& layout, const NetworkSeconds& seconds,
                         int64_t num_blocks) const {
    return CycleSeconds(slowest_s()) - CycleSeconds(seconds.OfStage(layout, num_blocks, slowest_));
  }
  const ActionSeconds& slowest_s() const { return stages_[static_cast<size_t>(slowest_)]; }
  absl::Span<const ActionSeconds> all() const { return stages_; }

  // All passes of a step by the schedule's closed form.
  double MakespanSeconds(const Layout& layout, double transfer_s) {
    const double chunks = layout.virtual_stages;
    if (layout.virtual_stages > 1) Scale(1 / chunks);
    for (ActionSeconds& stage : stages_) stage.transfer_s = transfer_s;
    const double makespan_s = PipelineSeconds(
        layout.pp_schedule, stages_, layout.gradient_accumulation_steps, layout.virtual_stages);
    if (layout.virtual_stages > 1) Scale(chunks);
    return makespan_s;
  }

 private:
  void Scale(double factor) {
    for (ActionSeconds& stage : stages_) {
      stage.forward_s *= factor;
      stage.backward_s *= factor;
      stage.weight_gradient_s *= factor;
    }
  }

  std::array<ActionSeconds, 64> few_;  // no allocation for the depths that searches try
  std::vector<ActionSeconds> many_;
  absl::Span<ActionSeconds> stages_;
  int slowest_ = 0;
};

double WaitedTransfer(const Question& question, const Layout& layout, const Stages& stages) {
  return WaitedBoundarySeconds(question, layout,
                               stages.slowest_s().forward_s / layout.virtual_stages);
}

struct Makespans {
  double without_transfers_s = 0;
  double with_transfers_s = 0;
};

Makespans ClosedForm(const Question& question, const Layout& layout, Stages& stages) {
  if (layout.pp == 1) {
    const double busy_s =
        static_cast<double>(layout.gradient_accumulation_steps) * CycleSeconds(stages.slowest_s());
    return {busy_s, busy_s};
  }
  return {stages.MakespanSeconds(layout, 0),
          stages.MakespanSeconds(layout, WaitedTransfer(question, layout, stages))};
}

// Each chunk of a stage has its blocks' share of what the stage waits for.
absl::StatusOr<double> SimulatedSeconds(const Question& question, const Layout& layout,
                                        const NetworkSeconds& seconds, const Stages& stages) {
  const double transfer_s = WaitedTransfer(question, layout, stages);
  std::vector<ActionSeconds> chunks;
  for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      const int64_t num_blocks = question.model.num_blocks;
      ActionSeconds& own = chunks.emplace_back(seconds.OfChunk(layout, num_blocks, stage, chunk));
      if (MovesInPasses(layout)) {
        const auto count =
            static_cast<double>(ChunkBlocks(layout, num_blocks, stage, chunk).size());
        const int64_t all = StageBlockCount(layout, num_blocks, stage);
        const double share = count / static_cast<double>(std::max<int64_t>(1, all));
        const ActionSeconds with = stages.all()[static_cast<size_t>(stage)];
        const ActionSeconds without = seconds.OfStage(layout, num_blocks, stage);
        own.forward_s += share * (with.forward_s - without.forward_s);
        own.backward_s += share * (with.backward_s - without.backward_s);
        own.weight_gradient_s += share * (with.weight_gradient_s - without.weight_gradient_s);
      }
      own.transfer_s = transfer_s;
    }
  }
  return DryRunSeconds(layout.pp_schedule, layout.pp, chunks, layout.gradient_accumulation_steps);
}

// One dry run: what of its time transfers cost is the closed form's to say, as a second run without
// them would double the price of a finalist.
absl::StatusOr<Makespans> Replayed(const Question& question, const Layout& layout,
                                   const NetworkSeconds& seconds, Stages& stages) {
  const Makespans closed = ClosedForm(question, layout, stages);
  Makespans makespans;
  ASSIGN_OR_RETURN(makespans.with_transfers_s, SimulatedSeconds(question, layout, seconds, stages));
  const double transfers_s = closed.with_transfers_s - closed.without_transfers_s;
  makespans.without_transfers_s =
      std::max(closed.without_transfers_s, makespans.with_transfers_s - transfers_s);
  return makespans;
}

// Workers that share cores: one that waits leaves its core to the others, so the cores are busy
// until all work is done, or the schedule of workers that have a core each is what takes longest.
Makespans WithSharedCores(const Layout& layout, const Stages& shared, Makespans alone) {
  double mean_busy_s = 0;
  for (const ActionSeconds& stage : shared.all()) {
    mean_busy_s +=
        static_cast<double>(layout.gradient_accumulation_steps) * CycleSeconds(stage) / layout.pp;
  }
  return {std::max(mean_busy_s, alone.without_transfers_s),
          std::max(mean_busy_s, alone.with_transfers_s)};
}

StepPasses Sum(const Question& question, const Layout& layout, NetworkPasses& network,
               const NetworkSeconds& seconds, const Stages& stages, const Makespans& makespans) {
  const auto microbatches = static_cast<double>(layout.gradient_accumulation_steps);
  const int slowest = stages.slowest();
  const auto blocks =
      static_cast<double>(StageBlockCount(layout, question.model.num_blocks, slowest));
  StepPasses passes;
  const auto add = [&](double factor, const PassCost& part) {
    passes.time += (factor * microbatches) * part.forward;
    passes.time += (factor * microbatches) * part.backward;
  };
  const int64_t dense =
      StageBlocksBefore(layout, question.model.num_blocks, slowest, seconds.dense_blocks);
  add(blocks - static_cast<double>(dense),
      network.Block(question, layout, layout.recompute_of(slowest)));
  if (dense > 0) {
    add(static_cast<double>(dense),
        network.DenseBlock(question, layout, layout.recompute_of(slowest)));
  }
  passes.time += blocks * CodesOfWeights(question, layout, layout.recompute_of(slowest));
  if (slowest == 0) add(1, network.Embedding(question, layout));
  if (slowest == layout.pp - 1) add(1, network.Head(question, layout));
  const double busy_s = microbatches * CycleSeconds(stages.slowest_s());
  passes.time[TimeTerm::kBubble] = std::max(0.0, makespans.without_transfers_s - busy_s);
  passes.time[TimeTerm::kPipelineComm] =
      std::max(0.0, makespans.with_transfers_s - makespans.without_transfers_s);
  if (MovesInPasses(layout)) {
    passes.time[TimeTerm::kDataComm] =
        microbatches * stages.slowest_waits_s(layout, seconds, question.model.num_blocks);
  }
  passes.network = seconds;
  return passes;
}

// Every worker with a core of its own.
Question Alone(const Question& question) {
  Question alone = question;
  alone.cluster.cores_per_node = 0;
  return alone;
}

bool SharesCores(const Question& question, const Layout& layout) {
  return CoreSharing(question.cluster, layout.world_size()) > 1;
}

// Either by closed form or by a dry run; workers that share cores need both kinds of stages.
template <typename MakespansOf>
absl::StatusOr<StepPasses> PassesBy(const Question& question, const Layout& layout,
                                    NetworkPasses& network, StageDuesTable& dues,
                                    const MakespansOf& makespans_of) {
  const NetworkSeconds seconds = NetworkOf(question, layout, network);
  Stages stages(question, layout, seconds, dues);
  Makespans makespans;
  if (!SharesCores(question, layout)) {
    ASSIGN_OR_RETURN(makespans, makespans_of(question, seconds, stages));
    return Sum(question, layout, network, seconds, stages, makespans);
  }
  const Question alone = Alone(question);
  NetworkPasses network_alone;
  const NetworkSeconds seconds_alone = NetworkOf(alone, layout, network_alone);
  StageDuesTable dues_alone(alone);
  Stages stages_alone(alone, layout, seconds_alone, dues_alone);
  ASSIGN_OR_RETURN(makespans, makespans_of(alone, seconds_alone, stages_alone));
  return Sum(question, layout, network, seconds, stages,
             WithSharedCores(layout, stages, makespans));
}

// Whether `stage` holds as much as the one before it. `even`: of the layout, if it lists no blocks.
bool IsLikeTheOneBefore(const ModelShape& model, const Layout& layout, const EvenBlockCounts& even,
                        int stage) {
  if (stage <= 1 || stage == layout.pp - 1) return false;
  const bool listed = !layout.layers_per_stage.empty();
  const auto same = [&](const auto& count) { return count(stage) == count(stage - 1); };
  const auto count = [&](int at) {
    return listed ? layout.layers_per_stage[static_cast<size_t>(at)] : even.Of(at);
  };
  return same(count) && same([&](int at) { return layout.recompute_of(at); }) && same([&](int at) {
           return StageBlocksBefore(layout, model.num_blocks, at, model.num_dense_blocks);
         });
}

}  // namespace

const PassCost& NetworkPasses::Embedding(const Question& question, const Layout& layout) {
  if (!embedding_) embedding_ = EmbeddingPass(question, layout);
  return *embedding_;
}

const PassCost& NetworkPasses::Head(const Question& question, const Layout& layout) {
  if (!head_) head_ = HeadPass(question, layout);
  return *head_;
}

const PassCost& NetworkPasses::Block(const Question& question, const Layout& layout,
                                     Recompute recompute) {
  std::optional<PassCost>& block = blocks_[static_cast<size_t>(recompute)];
  if (!block) block = BlockPass(question, layout, recompute);
  return *block;
}

const PassCost& NetworkPasses::DenseBlock(const Question& question, const Layout& layout,
                                          Recompute recompute) {
  std::optional<PassCost>& block = dense_blocks_[static_cast<size_t>(recompute)];
  if (block) return *block;
  Question dense = question;
  dense.model = OfDenseBlocks(question.model);
  block = BlockPass(dense, layout, recompute);
  return *block;
}

NetworkSeconds NetworkOf(const Question& question, const Layout& layout, NetworkPasses& network) {
  NetworkSeconds seconds;
  seconds.embedding = SecondsOf(network.Embedding(question, layout));
  seconds.head = SecondsOf(network.Head(question, layout));
  seconds.dense_blocks = question.model.num_dense_blocks;
  std::array<bool, 3> known = {};  // by Recompute
  for (int stage = 0; stage < layout.pp; ++stage) {
    const Recompute recompute = layout.recompute_of(stage);
    const auto mode = static_cast<size_t>(recompute);
    if (!known[mode]) {
      seconds.blocks[mode] = SecondsOf(network.Block(question, layout, recompute));
      if (seconds.dense_blocks > 0) {
        const ActionSeconds dense = SecondsOf(network.DenseBlock(question, layout, recompute));
        const ActionSeconds& own = seconds.blocks[mode];
        seconds.dense_more[mode] = {
            .forward_s = dense.forward_s - own.forward_s,
            .backward_s = dense.backward_s - own.backward_s,
            .transfer_s = 0,
            .weight_gradient_s = dense.weight_gradient_s - own.weight_gradient_s};
      }
    }
    known[mode] = true;
    if (layout.recompute_per_stage.empty()) break;
  }
  return seconds;
}

StepPasses EstimatePasses(const Question& question, const Layout& layout, NetworkPasses& network,
                          StageDuesTable& dues) {
  const auto closed = [&](const Question& asked, const NetworkSeconds&,
                          Stages& stages) -> absl::StatusOr<Makespans> {
    return ClosedForm(asked, layout, stages);
  };
  return *PassesBy(question, layout, network, dues, closed);
}

TermSeconds StageEnd(const Question& question, const Layout& layout, int stage,
                     const StepPasses& passes, StageDuesTable& dues) {
  return StepEnd(layout, stage, passes.network.OfStage(layout, question.model.num_blocks, stage),
                 dues.Of(layout, stage));
}

// The reductions of the stage that has most of them come last.
TermSeconds EstimateStep(const Question& question, const Layout& layout, const StepPasses& passes,
                         StageDuesTable& dues, const TermSeconds& first_end) {
  TermSeconds end = first_end;
  double end_s = end.total_s();
  const EvenBlockCounts even(question.model.num_blocks, layout.pp, layout.virtual_stages);
  for (int stage = 1; stage < layout.pp; ++stage) {
    // No stage of an even split holds more than the first or the last, if blocks are alike.
    const bool alike = layout.layers_per_stage.empty() && question.model.num_dense_blocks == 0;
    if (alike) stage = layout.pp - 1;
    if (!alike && IsLikeTheOneBefore(question.model, layout, even, stage)) continue;
    const TermSeconds other = StageEnd(question, layout, stage, passes, dues);
    const double other_s = other.total_s();
    if (other_s > end_s) {
      end = other;
      end_s = other_s;
    }
  }
  TermSeconds step = passes.time;
  step += end;
  const double ranks = layout.world_size();
  step[TimeTerm::kStragglers] =
      question.engine.time.straggler_sigma * std::sqrt(2 * std::log(ranks)) * step.total_s();
  return step;
}

TermSeconds EstimateStep(const Question& question, const Layout& layout, const StepPasses& passes,
                         StageDuesTable& dues) {
  const TermSeconds first_end = StageEnd(question, layout, 0, passes, dues);
  return EstimateStep(question, layout, passes, dues, first_end);
}

TermSeconds EstimateStep(const Question& question, const Layout& layout) {
  NetworkPasses network;
  StageDuesTable dues(question);
  const StepPasses passes = EstimatePasses(question, layout, network, dues);
  return EstimateStep(question, layout, passes, dues);
}

absl::StatusOr<StepPasses> ReplayPasses(const Question& question, const Layout& layout) {
  NetworkPasses network;
  StageDuesTable dues(question);
  if (layout.pp == 1) return EstimatePasses(question, layout, network, dues);
  const auto replayed = [&](const Question& asked, const NetworkSeconds& seconds, Stages& stages) {
    return Replayed(asked, layout, seconds, stages);
  };
  return PassesBy(question, layout, network, dues, replayed);
}

absl::StatusOr<TermSeconds> ReplayStep(const Question& question, const Layout& layout) {
  StepPasses passes;
  ASSIGN_OR_RETURN(passes, ReplayPasses(question, layout));
  StageDuesTable dues(question);
  return EstimateStep(question, layout, passes, dues);
}

double DeterminismSeconds(const Question& question, const Layout& layout, double total_s) {
  if (!question.deterministic || question.cluster.device.backend == BackendKind::kCpu) return 0;
  Question loose = question;
  loose.deterministic = false;
  const absl::StatusOr<TermSeconds> step = ReplayStep(loose, layout);
  return step.ok() ? std::max(0.0, total_s - step->total_s()) : 0;
}

}  // namespace weft
