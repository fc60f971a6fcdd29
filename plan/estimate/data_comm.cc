#include "plan/estimate/data_comm.h"

#include <algorithm>

#include "plan/estimate/state_bytes.h"

namespace weft {
namespace {

// Of an engine that reduces all of a stage in buckets of a size: the last one is never hidden.
constexpr double kLastBucket = 0.02;

// Collectives run beside compute where there is room for them: a GPU has units to spare, workers on
// processors need a core that no worker computes on.
double ReduceWindow(const Question& question, const Machine& machine, int world) {
  const int workers = std::min(world, machine.slots_per_node);
  const bool has_room = machine.gpu || question.cluster.cores_per_node > workers;
  return has_room ? question.engine.time.reduce_window : 0;
}

// Of a head with a table of its own.
double HeadParameters(const Question& question, const Layout& layout) {
  const double norm = question.model.family == ModelFamily::kGpt2 ? 2 : 1;
  return (LocalVocabulary(question, layout) + norm) *
         static_cast<double>(question.model.hidden_size);
}

bool SplitsBackward(const Layout& layout) {
  return layout.schedule == ScheduleKind::kZeroBubbleH1;
}

}  // namespace

// 1F1B and what goes by it alternate after their warm-up. Of interleaved chunks that is left out.
DataComm::Turns DataComm::TurnsOf(int stage) const {
  const auto microbatches = static_cast<double>(layout_.num_microbatches);
  const double ahead = std::min<double>(layout_.pp - 1 - stage, microbatches);
  switch (layout_.schedule) {
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

bool MovesInPasses(const Layout& layout) {
  return layout.zero_stage >= 2 && layout.zero_ranks() > 1;
}

double SummedGradientBytes(const Question& question) {
  return question.precision == Precision::kFp32 ? 4 : question.engine.time.gradient_bytes;
}

double GatheredWeightBytes(const Question& question) {
  return question.precision == Precision::kFp32 ? 4 : question.engine.time.parameter_bytes;
}

DataComm::DataComm(const Question& question, const Machine& machine, const Layout& layout,
                   int stage)
    : question_(question),
      machine_(machine),
      layout_(layout),
      habits_(question.engine.time),
      stage_(stage),
      data_(GroupOf(machine, layout.data_group(), layout.tp, layout.world_size())),
      shard_(GroupOf(machine, layout.zero_ranks(), layout.tp, layout.world_size())),
      across_(GroupOf(machine, layout.data_group() / layout.zero_ranks(),
                      layout.tp * layout.zero_ranks(), layout.world_size())),
      reduce_window_(ReduceWindow(question, machine, layout.world_size())),
      last_share_(kLastBucket) {
  if (habits_.by_buckets && !question.adapters) {
    TakeBuckets();
  } else {
    TakePool();
  }
}

// The buckets of plan/buckets.h, each in a collective of its own, hidden by the blocks after it.
void DataComm::TakeBuckets() {
  const StageParameters block = BlockParameters(question_, layout_);
  const StageParameters own = ParametersOf(question_, layout_, stage_);
  const BucketCounts counts = BucketCountsOf(question_, layout_, stage_);
  blocks_ = static_cast<double>(counts.blocks);
  last_share_ = 1 / blocks_;
  block_ = MovesOf(block.all(), block.all());
  if (MovesInPasses(layout_)) {
    for (const WholePlace place : {WholePlace::kEvenBlocks, WholePlace::kOddBlocks}) {
      if (!counts.IsShared(place)) continue;
      cut_ += static_cast<double>(counts.at(place));
      kept_ += 1;
    }
    ends_cut_ = counts.IsShared(WholePlace::kEnds);
  }
  const bool first = stage_ == 0;
  const bool last = stage_ == layout_.pp - 1;
  const bool tied = question_.model.tied_embeddings;
  double ends = own.all() - blocks_ * block.all();
  if (first) {
    const double head = last && !tied ? HeadParameters(question_, layout_) : 0;
    embedding_ = {.held = true, .late = true, .moves = MovesOf(ends - head, ends - head)};
    ends = head;
  }
  // The copies of a tied table are summed first, after the last pass.
  const bool copied = tied && layout_.pp > 1;
  if (last && ends > 0) head_ = {.held = true, .late = copied, .moves = MovesOf(ends, ends)};
}

// Everything of a stage as one, in collectives of the engine's size.
void DataComm::TakePool() {
  const StageParameters own = ParametersOf(question_, layout_, stage_);
  const double trained = question_.adapters ? own.adapters : own.all();
  const bool in_parts = layout_.zero_stage == 3;
  block_ = MovesOf(trained, in_parts ? own.all() : trained);
  if (!MovesInPasses(layout_)) return;
  cut_ = 1;
  // FSDP and others sum over all ranks in every pass.
  block_.scatter_s += block_.across_s;
  block_.across_s = 0;
}

DataComm::Moves DataComm::MovesOf(double summed_parameters, double gathered_parameters) const {
  Moves moves;
  const double bytes = SummedGradientBytes(question_) * summed_parameters;
  if (layout_.zero_stage == 0) {
    moves.scatter_s = ReduceSeconds(data_, bytes);
    return moves;
  }
  moves.scatter_s = ReduceSeconds(shard_, bytes);
  const double part_bytes = bytes / layout_.zero_ranks();
  if (part_bytes > 0 && across_.ranks > 1) {
    const double pieces = habits_.by_buckets ? 1 : std::max(1.0, bytes / habits_.bucket_bytes);
    moves.across_s = pieces * AllReduceSeconds(machine_, across_, part_bytes / pieces);
  }
  const double gathered_bytes = GatheredWeightBytes(question_) * gathered_parameters;
  if (gathered_bytes <= 0) return moves;
  const double pieces =
      habits_.by_buckets ? 1 : std::max(1.0, gathered_bytes / habits_.bucket_bytes);
  moves.gather_s = pieces * AllGatherSeconds(machine_, shard_, gathered_bytes / pieces);
  return moves;
}

// To all ranks (ZeRO 0), or to those that own them.
double DataComm::ReduceSeconds(const RankGroup& group, double bytes) const {
  if (bytes <= 0) return 0;
  const double pieces = habits_.by_buckets ? 1 : std::max(1.0, bytes / habits_.bucket_bytes);
  const bool to_all = layout_.zero_stage == 0 || habits_.zero_all_reduces;
  return pieces * (to_all ? AllReduceSeconds(machine_, group, bytes / pieces)
                          : ReduceScatterSeconds(machine_, group, bytes / pieces));
}

// A communication of which what fits into a window is hidden, but for its last share.
double DataComm::Exposed(double comm_s, double window_s, double last_share) const {
  const double hidden_s = std::min((1 - last_share) * comm_s, window_s);
  return comm_s - hidden_s + habits_.overlap_slowdown * hidden_s;
}

// Each bucket hides behind a block: its weights come while the one before computes, its gradient
// leaves while the next does. Embedding and head are gathered for the forward pass alone, in which
// the head's gradient is made, too (worker/stage.cc).
ActionSeconds DataComm::WaitsOfOne(const Turns& turns, const ActionSeconds& passes,
                                   bool last) const {
  const bool gathers = layout_.zero_stage == 3;
  const bool halves = SplitsBackward(layout_);
  const double window = reduce_window_ / blocks_;
  const double weights_s = halves ? passes.weight_gradient_s : 0;
  const double forward_window_s = window * passes.forward_s;
  const double backward_window_s = window * (passes.backward_s - weights_s);
  const auto exposed = [this](double comm_s, double window_s) {
    return Exposed(comm_s, window_s, kLastBucket);
  };
  const double gather_s = gathers ? block_.gather_s : 0;
  ActionSeconds waits = {.forward_s = 0, .backward_s = 0};
  const double kept = gathers ? kept_ * turns.backward : 0;  // and only scattered
  waits.forward_s = (cut_ - kept_ * turns.forward) * exposed(gather_s, forward_window_s);
  waits.backward_s = (cut_ - kept) * exposed(gather_s + block_.scatter_s, backward_window_s) +
                     kept * exposed(block_.scatter_s, backward_window_s);
  for (const End& end : {embedding_, head_}) {
    if (!ends_cut_ || !end.held) continue;
    if (gathers) waits.forward_s += exposed(end.moves.gather_s, forward_window_s);
    if (last && end.late) continue;  // with nothing to hide behind
    waits.backward_s += exposed(end.moves.scatter_s, backward_window_s);
  }
  if (halves) {
    waits.weight_gradient_s = cut_ * exposed(block_.scatter_s, window * weights_s);
    waits.backward_s += waits.weight_gradient_s;
  }
  return waits;
}

ActionSeconds DataComm::PassWaits(int stage, const ActionSeconds& passes) const {
  if (!MovesInPasses(layout_)) return {.forward_s = 0, .backward_s = 0};
  ActionSeconds waits = WaitsOfOne(TurnsOf(stage), passes, /*last=*/false);
  const double last = 1 / static_cast<double>(layout_.num_microbatches);
  if (SplitsBackward(layout_)) {
    waits.backward_s -= last * waits.weight_gradient_s;
    waits.weight_gradient_s -= last * waits.weight_gradient_s;
  } else {
    waits.backward_s -= last * waits.backward_s;
  }
  return waits;
}

// Beside the last pass moves what moves there for every microbatch, and what is summed once: so
// ZeRO 2 and 3 never wait for less than ZeRO 1.
double DataComm::EndSeconds(const ActionSeconds& passes) const {
  const bool halves = SplitsBackward(layout_);
  const bool gathers = MovesInPasses(layout_) && layout_.zero_stage == 3;
  const Turns turns = TurnsOf(stage_);
  const double last_s = halves ? passes.weight_gradient_s : passes.backward_s;
  double beside_s = blocks_ * block_.reduce_s();
  if (gathers && !halves) beside_s += (cut_ - kept_ * turns.backward) * block_.gather_s;
  double after_s = 0;
  for (const End& end : {embedding_, head_}) {
    if (end.held) (end.late ? after_s : beside_s) += end.moves.reduce_s();
  }
  double waits_s = Exposed(beside_s, reduce_window_ * last_s, last_share_);
  if (MovesInPasses(layout_)) {
    const ActionSeconds last = WaitsOfOne(turns, passes, /*last=*/true);
    waits_s = std::max(waits_s, halves ? last.weight_gradient_s : last.backward_s);
  }
  double end_s = after_s + waits_s;
  if (layout_.zero_stage == 0) return end_s;
  // What is whole in passes comes from its owners after the update.
  double gather_s = (gathers ? blocks_ - cut_ : blocks_) * block_.gather_s;
  for (const End& end : {embedding_, head_}) {
    if (end.held && !(gathers && ends_cut_)) gather_s += end.moves.gather_s;
  }
  return end_s + Exposed(gather_s, habits_.gather_window * passes.forward_s, kLastBucket);
}

}  // namespace weft
