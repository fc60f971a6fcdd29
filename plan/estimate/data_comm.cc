#include "plan/estimate/data_comm.h"

#include <algorithm>

#include "plan/memory/memory.h"
#include "plan/schedule/schedule.h"

namespace weft {
namespace {

// The last bucket of an engine that reduces all of a stage in buckets of a size is never hidden.
constexpr double kLastBucket = 0.02;

// Rounding to 16 bits before a sum, and widening after it, reads once and writes once.
constexpr double kNarrowingBytes = 2 + 4;

// Collectives run beside compute where there is room for them: a GPU has units to spare, workers on
// processors need a core that no worker computes on.
bool HasRoomBeside(const Question& question, const Machine& machine, int world) {
  const int workers = std::min(world, machine.slots_per_node);
  return machine.gpu || question.cluster.cores_per_node > workers;
}

// Returns into how many collectives the engine cuts `bytes` of a stage.
double Pieces(const TimeHabits& habits, double blocks, double bytes) {
  if (habits.by_buckets) return 1;
  return habits.by_blocks ? blocks : std::max(1.0, bytes / habits.bucket_bytes);
}

// Counts the parameters of a head with a table of its own, the final norm included.
double HeadParameters(const Question& question, const Layout& layout) {
  const double norm = question.model.norm_vectors();
  return (LocalVocabulary(question, layout) + norm) *
         static_cast<double>(question.model.hidden_size);
}

// Returns the seconds of the pass after which all of a stage's gradients are there.
double LastPassSeconds(const Layout& layout, const ActionSeconds& passes) {
  return SplitsBackward(layout) ? passes.weight_gradient_s : passes.backward_s;
}

}  // namespace

bool MovesInPasses(const Layout& layout) {
  return layout.zero_stage >= 2 && layout.zero_ranks() > 1;
}

double SummedGradientBytes(const Question& question) {
  return question.numerics.precision == Precision::kFp32 ? 4 : question.engine.time.gradient_bytes;
}

double ReducedGradientBytes(const Question& question) {
  return question.numerics.narrows_sums() ? 2 : SummedGradientBytes(question);
}

double GatheredWeightBytes(const Question& question) {
  return question.numerics.precision == Precision::kFp32 ? 4 : question.engine.time.parameter_bytes;
}

DataComm::DataComm(const Question& question, const Machine& machine, const Layout& layout,
                   int stage, const StageShare& share)
    : habits_(&question.engine.time), last_share_(kLastBucket) {
  const int world = layout.world_size();
  if (HasRoomBeside(question, machine, world)) {
    reduce_window_ = habits_->reduce_window;
    gather_window_ = habits_->gather_window;
  }
  const int owners = layout.zero_ranks();
  const Axis axis = {
      .question = question,
      .machine = machine,
      .layout = layout,
      .share = share,
      .blocks = std::max(
          1.0, static_cast<double>(StageBlockCount(layout, question.model.num_blocks, stage))),
      .data = GroupOf(machine, layout.data_group(), layout.tp, world),
      .shard = GroupOf(machine, owners, layout.tp, world),
      .across = GroupOf(machine, layout.data_group() / owners, layout.tp * owners, world)};
  const bool by_buckets = habits_->by_buckets && !question.adapters;
  if (by_buckets) {
    TakeBuckets(axis, stage);
  } else {
    TakePool(axis);
  }
  narrow_s_ = blocks_ * block_.narrow_s;
  beside_s_ = blocks_ * block_.reduce_s();
  gather_s_ = blocks_ * block_.gather_s;
  for (const End& end : {embedding_, head_}) {
    if (!end.held) continue;
    narrow_s_ += end.moves.narrow_s;
    (end.late ? late_s_ : beside_s_) += end.moves.reduce_s();
    gather_s_ += end.moves.gather_s;
  }
  first_gather_s_ = kLastBucket * gather_s_;
  if (by_buckets) first_gather_s_ = (embedding_.held ? embedding_.moves : block_).gather_s;
}

// 1F1B and what goes by it alternate after their warm-up. Of interleaved chunks that is left out.
DataComm::Turns DataComm::TurnsOf(const Layout& layout, int stage) {
  const auto microbatches = static_cast<double>(layout.gradient_accumulation_steps);
  const double ahead = std::min<double>(layout.pp - 1 - stage, microbatches);
  switch (layout.pp_schedule) {
    case ScheduleKind::kGpipe:
      return {.backward = 1 / microbatches};
    case ScheduleKind::kInterleaved:
      return {};
    case ScheduleKind::kOneForwardOneBackward:
    case ScheduleKind::kZeroBubbleH1:
      break;
  }
  return {.forward = std::max(0.0, microbatches - ahead - 1) / microbatches,
          .backward = std::max(1.0, microbatches - ahead) / microbatches};
}

// The buckets of plan/shards/buckets.h, each in a collective of its own, hidden by the blocks after
// it.
void DataComm::TakeBuckets(const Axis& axis, int stage) {
  const Question& question = axis.question;
  const Layout& layout = axis.layout;
  const StageParameters& block = axis.share.block;
  const StageParameters& own = axis.share.own;
  const BucketCounts counts = BucketCountsOf(question, layout, stage);
  blocks_ = static_cast<double>(counts.blocks);
  last_share_ = 1 / std::max(1.0, blocks_);
  block_ = MovesOf(axis, block.all(), block.all());
  pass_gather_s_ = block_.gather_s;
  pass_scatter_s_ = block_.scatter_s;
  for (const WholePlace place : {WholePlace::kEvenBlocks, WholePlace::kOddBlocks}) {
    if (!counts.IsShared(place)) continue;
    cut_ += static_cast<double>(counts.at(place));
    kept_ += 1;
  }
  ends_cut_ = counts.IsShared(WholePlace::kEnds);
  const bool first = stage == 0;
  const bool last = stage == layout.pp - 1;
  const bool tied = question.model.tied_embeddings;
  double ends = own.all() - blocks_ * block.all();
  if (first) {
    const double head = last && !tied ? HeadParameters(question, layout) : 0;
    embedding_ = {.held = true, .late = true, .moves = MovesOf(axis, ends - head, ends - head)};
    ends = head;
  }
  // The copies of a tied table are summed first, after the last pass.
  const bool copied = tied && layout.pp > 1;
  if (last && ends > 0) head_ = {.held = true, .late = copied, .moves = MovesOf(axis, ends, ends)};
}

// Everything of a stage as one, in collectives of the engine's size.
void DataComm::TakePool(const Axis& axis) {
  const Question& question = axis.question;
  const StageParameters& own = axis.share.own;
  const double trained = question.adapters ? own.adapters : own.all();
  block_ = MovesOf(axis, trained, trained);
  pass_gather_s_ = question.adapters ? GatherSeconds(axis, own.all()) : block_.gather_s;
  cut_ = 1;
  // The first unit that is gathered, and the last that is reduced, have nothing to move beside.
  if (habits_->by_blocks) last_share_ = 1 / axis.blocks;
  // FSDP and others sum over all ranks in every pass.
  pass_scatter_s_ = block_.reduce_s();
}

DataComm::Moves DataComm::MovesOf(const Axis& axis, double summed_parameters,
                                  double gathered_parameters) {
  const TimeHabits& habits = axis.question.engine.time;
  const Layout& layout = axis.layout;
  Moves moves;
  const double bytes = ReducedGradientBytes(axis.question) * summed_parameters;
  if (NarrowsSums(layout, axis.question.numerics)) {
    const double own = layout.zero_stage == 0 ? 1 : 1.0 / layout.zero_ranks();
    moves.narrow_s = CoreSharing(axis.question.cluster, layout.world_size()) * kNarrowingBytes *
                     (1 + own) * summed_parameters / axis.machine.memory_bytes_per_s;
  }
  if (layout.zero_stage == 0) {
    moves.scatter_s = ReduceSeconds(axis, axis.data, bytes);
    return moves;
  }
  moves.scatter_s = ReduceSeconds(axis, axis.shard, bytes);
  const double part_bytes = bytes / layout.zero_ranks();
  if (part_bytes > 0 && axis.across.ranks > 1) {
    const double pieces = Pieces(habits, axis.blocks, bytes);
    moves.across_s = pieces * AllReduceSeconds(axis.machine, axis.across, part_bytes / pieces);
  }
  moves.gather_s = GatherSeconds(axis, gathered_parameters);
  return moves;
}

double DataComm::GatherSeconds(const Axis& axis, double parameters) {
  const double bytes = GatheredWeightBytes(axis.question) * parameters;
  if (bytes <= 0 || axis.layout.zero_stage == 0) return 0;
  const double pieces = Pieces(axis.question.engine.time, axis.blocks, bytes);
  return pieces * AllGatherSeconds(axis.machine, axis.shard, bytes / pieces);
}

// To all ranks (ZeRO 0), or to those that own them.
double DataComm::ReduceSeconds(const Axis& axis, const PricedGroup& group, double bytes) {
  if (bytes <= 0) return 0;
  const TimeHabits& habits = axis.question.engine.time;
  const double pieces = Pieces(habits, axis.blocks, bytes);
  const bool to_all = axis.layout.zero_stage == 0 || habits.zero_all_reduces;
  return pieces * (to_all ? AllReduceSeconds(axis.machine, group, bytes / pieces)
                          : ReduceScatterSeconds(axis.machine, group, bytes / pieces));
}

// A communication of which what fits into a window is hidden, but for its last share.
double DataComm::Exposed(double comm_s, double window_s, double last_share) const {
  const double hidden_s = std::min((1 - last_share) * comm_s, window_s);
  return comm_s - hidden_s + habits_->overlap_slowdown * hidden_s;
}

// The first pass of the next step waits for each bucket in turn: what it takes first has nothing to
// hide behind, the others what is computed before them.
double DataComm::ExposedGather(double gather_s, const ActionSeconds& passes) const {
  const double hidden_s =
      std::min(std::max(0.0, gather_s - first_gather_s_), gather_window_ * passes.forward_s);
  return gather_s - hidden_s + habits_->overlap_slowdown * hidden_s;
}

// Each bucket hides behind a block: its weights come while the one before computes, its gradient
// leaves while the next does. Embedding and head are gathered for the forward pass alone, in which
// the head's gradient is made, too (worker/model/stage.cc).
ActionSeconds DataComm::WaitsOfOne(const Layout& layout, const Turns& turns,
                                   const ActionSeconds& passes, bool last) const {
  const bool halves = SplitsBackward(layout);
  const double window = reduce_window_ / std::max(1.0, blocks_);
  const double weights_s = halves ? passes.weight_gradient_s : 0;
  const double forward_window_s = window * passes.forward_s;
  const double backward_window_s = window * (passes.backward_s - weights_s);
  const double last_share = habits_->by_blocks ? last_share_ : kLastBucket;
  const auto exposed = [this, last_share](double comm_s, double window_s) {
    return Exposed(comm_s, window_s, last_share);
  };
  const bool gathers = Gathers(layout);
  const double gather_s = gathers ? pass_gather_s_ : 0;
  ActionSeconds waits = {.forward_s = 0, .backward_s = 0};
  const double kept = gathers ? kept_ * turns.backward : 0;  // and only scattered
  waits.forward_s = (cut_ - kept_ * turns.forward) * exposed(gather_s, forward_window_s);
  waits.backward_s = (cut_ - kept) * exposed(gather_s + pass_scatter_s_, backward_window_s) +
                     kept * exposed(pass_scatter_s_, backward_window_s);
  for (const End& end : {embedding_, head_}) {
    if (!ends_cut_ || !end.held) continue;
    if (gathers) waits.forward_s += exposed(end.moves.gather_s, forward_window_s);
    if (last && end.late) continue;  // with nothing to hide behind
    waits.backward_s += exposed(end.moves.scatter_s, backward_window_s);
  }
  if (halves) {
    waits.weight_gradient_s = cut_ * exposed(pass_scatter_s_, window * weights_s);
    waits.backward_s += waits.weight_gradient_s;
  }
  return waits;
}

ActionSeconds DataComm::PassWaits(const Layout& layout, int stage,
                                  const ActionSeconds& passes) const {
  if (!MovesInPasses(layout)) return {.forward_s = 0, .backward_s = 0};
  ActionSeconds waits = WaitsOfOne(layout, TurnsOf(layout, stage), passes, /*last=*/false);
  double narrow_s = cut_ * block_.narrow_s;
  for (const End& end : {embedding_, head_}) {
    if (ends_cut_ && end.held) narrow_s += end.moves.narrow_s;
  }
  waits.backward_s += narrow_s;
  if (SplitsBackward(layout)) waits.weight_gradient_s += narrow_s;
  const double last = 1 / static_cast<double>(layout.gradient_accumulation_steps);
  if (SplitsBackward(layout)) {
    waits.backward_s -= last * waits.weight_gradient_s;
    waits.weight_gradient_s -= last * waits.weight_gradient_s;
  } else {
    waits.backward_s -= last * waits.backward_s;
  }
  return waits;
}

// Beside the last pass moves what moves there for every microbatch, and what is summed once: so
// ZeRO 2 and 3 never wait for less than ZeRO 1.
double DataComm::EndSeconds(const Layout& layout, int stage, const ActionSeconds& passes) const {
  const bool halves = SplitsBackward(layout);
  const bool in_passes = MovesInPasses(layout);
  const bool gathers = Gathers(layout);
  const Turns turns = in_passes ? TurnsOf(layout, stage) : Turns{};
  double beside_s = beside_s_;
  if (gathers && !halves) beside_s += (cut_ - kept_ * turns.backward) * pass_gather_s_;
  double waits_s = Exposed(beside_s, reduce_window_ * LastPassSeconds(layout, passes), last_share_);
  if (in_passes) {
    const ActionSeconds last = WaitsOfOne(layout, turns, passes, /*last=*/true);
    waits_s = std::max(waits_s, halves ? last.weight_gradient_s : last.backward_s);
  }
  const double end_s = late_s_ + narrow_s_ + waits_s;
  if (layout.zero_stage == 0) return end_s;
  // Weights that are whole in passes come from their owners after the update.
  double gather_s = gather_s_;
  if (gathers) {
    gather_s = (blocks_ - cut_) * block_.gather_s;
    for (const End& end : {embedding_, head_}) {
      if (end.held && !ends_cut_) gather_s += end.moves.gather_s;
    }
  }
  return end_s + ExposedGather(gather_s, passes);
}

// The exposed part of a communication grows with it. ZeRO 3 sums all that ZeRO 1 does, and, unless
// backward passes are halved, gathers beside that for every block that it cuts but the kept ones.
double DataComm::LeastEndSeconds(const Layout& layout, const ActionSeconds& passes) const {
  const double window_s = reduce_window_ * LastPassSeconds(layout, passes);
  const double sums_s = Exposed(beside_s_, window_s, last_share_);
  const double gather_s = ExposedGather(gather_s_, passes);
  const double gathers_s = SplitsBackward(layout) ? 0 : (cut_ - kept_) * pass_gather_s_;
  return late_s_ + narrow_s_ +
         std::min(sums_s + gather_s, Exposed(beside_s_ + gathers_s, window_s, last_share_));
}

}  // namespace weft
