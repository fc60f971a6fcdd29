// The whole step: passes of all microbatches, bubble, step end (step_estimate.h).
#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "absl/types/span.h"
#include "plan/errors.h"
#include "plan/estimate/machine.h"
#include "plan/estimate/step_estimate.h"
#include "plan/schedule.h"

namespace weft {
namespace {

constexpr size_t kRecomputes = static_cast<size_t>(Recompute::kFull) + 1;

// The parts of the network on one layout, each priced once.
struct Parts {
  Parts(const Question& question, const Layout& layout)
      : embedding(EmbeddingPass(question, layout)), head(HeadPass(question, layout)) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      const Recompute recompute = layout.recompute_of(stage);
      const auto kind = static_cast<size_t>(recompute);
      if (!priced[kind]) blocks[kind] = BlockPass(question, layout, recompute);
      priced[kind] = true;
      if (layout.stage_recompute.empty()) break;
    }
  }

  const PassCost& block(const Layout& layout, int stage) const {
    return blocks[static_cast<size_t>(layout.recompute_of(stage))];
  }

  PassCost embedding, head;
  std::array<PassCost, kRecomputes> blocks;
  std::array<bool, kRecomputes> priced = {};
};

// One microbatch's passes through a part, terms added up.
struct Seconds {
  explicit Seconds(const PassCost& cost)
      : forward_s(cost.forward.total_s()),
        backward_s(cost.backward.total_s()),
        weight_gradient_s(cost.weight_gradient_s) {}
  double forward_s, backward_s, weight_gradient_s;
};

// The same of a layout's parts.
struct PartSeconds {
  PartSeconds(const Layout& layout, const Parts& parts)
      : embedding(parts.embedding),
        head(parts.head),
        blocks{Seconds(parts.blocks[0]), Seconds(parts.blocks[1]), Seconds(parts.blocks[2])},
        chunks(layout.virtual_stages) {}

  // Of `count` blocks of `stage`, with what its ends hold besides.
  ActionSeconds Of(const Layout& layout, int stage, double count, bool first, bool last) const {
    const Seconds& block = blocks[static_cast<size_t>(layout.recompute_of(stage))];
    ActionSeconds sum = {.forward_s = count * block.forward_s,
                         .backward_s = count * block.backward_s,
                         .transfer_s = 0,
                         .weight_gradient_s = count * block.weight_gradient_s};
    if (first) Add(embedding, sum);
    if (last) Add(head, sum);
    return sum;
  }

  static void Add(const Seconds& part, ActionSeconds& sum) {
    sum.forward_s += part.forward_s;
    sum.backward_s += part.backward_s;
    sum.weight_gradient_s += part.weight_gradient_s;
  }

  Seconds embedding, head;
  std::array<Seconds, kRecomputes> blocks;
  int chunks;
};

double CycleSeconds(const ActionSeconds& stage) {
  return stage.forward_s + stage.backward_s;
}

// A microbatch through all chunks of each stage.
class Stages {
 public:
  Stages(const Question& question, const Layout& layout, const Parts& parts) {
    if (layout.pp > static_cast<int>(few_.size())) many_.resize(static_cast<size_t>(layout.pp));
    const absl::Span<ActionSeconds> stages =
        many_.empty() ? absl::MakeSpan(few_.data(), static_cast<size_t>(layout.pp))
                      : absl::MakeSpan(many_);
    const PartSeconds seconds(layout, parts);
    for (int stage = 0; stage < layout.pp; ++stage) {
      const auto count =
          static_cast<double>(StageBlockCount(layout, question.model.num_blocks, stage));
      ActionSeconds& own = stages[static_cast<size_t>(stage)];
      own = seconds.Of(layout, stage, count, stage == 0, stage == layout.pp - 1);
      if (CycleSeconds(own) > CycleSeconds(stages[static_cast<size_t>(slowest_)])) slowest_ = stage;
    }
    stages_ = stages;
  }
  Stages(const Stages&) = delete;
  Stages& operator=(const Stages&) = delete;

  int slowest() const { return slowest_; }
  const ActionSeconds& slowest_s() const { return stages_[static_cast<size_t>(slowest_)]; }
  absl::Span<const ActionSeconds> all() const { return stages_; }

  // All passes of a step by the schedule's closed form.
  double MakespanSeconds(const Layout& layout, double transfer_s) {
    const double chunks = layout.virtual_stages;
    for (ActionSeconds& stage : stages_) {
      stage.forward_s /= chunks;
      stage.backward_s /= chunks;
      stage.weight_gradient_s /= chunks;
      stage.transfer_s = transfer_s;
    }
    const double makespan_s =
        PipelineSeconds(layout.schedule, stages_, layout.num_microbatches, layout.virtual_stages);
    for (ActionSeconds& stage : stages_) {
      stage.forward_s *= chunks;
      stage.backward_s *= chunks;
      stage.weight_gradient_s *= chunks;
    }
    return makespan_s;
  }

 private:
  std::array<ActionSeconds, 64> few_;  // no allocation for the depths that searches try
  std::vector<ActionSeconds> many_;
  absl::Span<ActionSeconds> stages_;
  int slowest_ = 0;
};

struct Makespans {
  double without_transfers_s = 0;
  double with_transfers_s = 0;
};

Makespans ClosedForm(const Question& question, const Layout& layout, Stages& stages) {
  if (layout.pp == 1) {
    const double busy_s =
        static_cast<double>(layout.num_microbatches) * CycleSeconds(stages.slowest_s());
    return {busy_s, busy_s};
  }
  return {stages.MakespanSeconds(layout, 0),
          stages.MakespanSeconds(layout, BoundarySeconds(question, layout))};
}

// Dry runs of more microbatches than this per stage are continued at the steady pace.
constexpr int64_t kReplayedRounds = 6;

absl::StatusOr<double> SimulatedSeconds(const Question& question, const Layout& layout,
                                        const Parts& parts) {
  Layout replayed = layout;
  replayed.num_microbatches =
      std::min(layout.num_microbatches, kReplayedRounds * int64_t{layout.pp});
  const double transfer_s = BoundarySeconds(question, layout);
  const PartSeconds seconds(layout, parts);
  std::vector<std::vector<Action>> actions;
  std::vector<ActionSeconds> chunks;
  double slowest_s = 0;
  for (int stage = 0; stage < layout.pp; ++stage) {
    actions.push_back(StepSchedule(replayed, stage, question.model.tied_embeddings));
  }
  std::vector<double> cycles_s(static_cast<size_t>(layout.pp));
  for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
    for (int stage = 0; stage < layout.pp; ++stage) {
      const auto count =
          static_cast<double>(ChunkBlocks(layout, question.model.num_blocks, stage, chunk).size());
      const bool first = stage == 0 && chunk == 0;
      const bool last = stage == layout.pp - 1 && chunk == layout.virtual_stages - 1;
      chunks.push_back(seconds.Of(layout, stage, count, first, last));
      chunks.back().transfer_s = transfer_s;
      double& cycle_s = cycles_s[static_cast<size_t>(stage)];
      cycle_s += CycleSeconds(chunks.back());
      slowest_s = std::max(slowest_s, cycle_s);
    }
  }
  Simulation simulation;
  ASSIGN_OR_RETURN(simulation, Simulate(actions, chunks));
  const double pace_s = slowest_s + (layout.pp > 1 ? 2 * layout.virtual_stages * transfer_s : 0);
  return simulation.makespan_s +
         static_cast<double>(layout.num_microbatches - replayed.num_microbatches) * pace_s;
}

// One dry run: what of its time transfers cost is the closed form's to say, as a second run without
// them would double the price of a finalist.
absl::StatusOr<Makespans> Replayed(const Question& question, const Layout& layout,
                                   const Parts& parts, Stages& stages) {
  const Makespans closed = ClosedForm(question, layout, stages);
  Makespans makespans;
  ASSIGN_OR_RETURN(makespans.with_transfers_s, SimulatedSeconds(question, layout, parts));
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
    mean_busy_s += static_cast<double>(layout.num_microbatches) * CycleSeconds(stage) / layout.pp;
  }
  return {std::max(mean_busy_s, alone.without_transfers_s),
          std::max(mean_busy_s, alone.with_transfers_s)};
}

// The reductions of the stage that has most of them come last.
TermSeconds SlowestStepEnd(const Question& question, const Layout& layout,
                           const ActionSeconds& passes) {
  const double forward_s = passes.forward_s;
  const double backward_s = passes.backward_s;
  TermSeconds slowest = StepEnd(question, layout, 0, forward_s, backward_s);
  const auto try_stage = [&](int stage) {
    const TermSeconds end = StepEnd(question, layout, stage, forward_s, backward_s);
    if (end.total_s() > slowest.total_s()) slowest = end;
  };
  if (layout.stage_blocks.empty()) {
    if (layout.pp > 1) try_stage(layout.pp - 1);
  } else {
    for (int stage = 1; stage < layout.pp; ++stage) try_stage(stage);
  }
  return slowest;
}

TermSeconds Sum(const Question& question, const Layout& layout, const Parts& parts,
                const Stages& stages, const Makespans& makespans) {
  const auto microbatches = static_cast<double>(layout.num_microbatches);
  const int slowest = stages.slowest();
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
  const double busy_s = microbatches * CycleSeconds(stages.slowest_s());
  step[TimeTerm::kBubble] = std::max(0.0, makespans.without_transfers_s - busy_s);
  step[TimeTerm::kPipelineComm] =
      std::max(0.0, makespans.with_transfers_s - makespans.without_transfers_s);
  step += SlowestStepEnd(question, layout, stages.slowest_s());
  const double ranks = layout.world_size();
  step[TimeTerm::kStragglers] =
      question.engine.time.straggler_sigma * std::sqrt(2 * std::log(ranks)) * step.total_s();
  return step;
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

}  // namespace

TermSeconds EstimateStep(const Question& question, const Layout& layout) {
  const Parts parts(question, layout);
  Stages stages(question, layout, parts);
  if (!SharesCores(question, layout)) {
    const Makespans makespans = ClosedForm(question, layout, stages);
    return Sum(question, layout, parts, stages, makespans);
  }
  const Question alone = Alone(question);
  Stages stages_alone(alone, layout, Parts(alone, layout));
  const Makespans makespans = ClosedForm(alone, layout, stages_alone);
  return Sum(question, layout, parts, stages, WithSharedCores(layout, stages, makespans));
}

absl::StatusOr<TermSeconds> ReplayStep(const Question& question, const Layout& layout) {
  if (layout.pp == 1) return EstimateStep(question, layout);
  const Parts parts(question, layout);
  Stages stages(question, layout, parts);
  Makespans makespans;
  if (!SharesCores(question, layout)) {
    ASSIGN_OR_RETURN(makespans, Replayed(question, layout, parts, stages));
    return Sum(question, layout, parts, stages, makespans);
  }
  const Question alone = Alone(question);
  const Parts parts_alone(alone, layout);
  Stages stages_alone(alone, layout, parts_alone);
  ASSIGN_OR_RETURN(makespans, Replayed(alone, layout, parts_alone, stages_alone));
  return Sum(question, layout, parts, stages, WithSharedCores(layout, stages, makespans));
}

}  // namespace weft
