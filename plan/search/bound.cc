#include "plan/search/bound.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {
namespace {

PassSeconds Plus(double blocks, const PassSeconds& block, const PassSeconds& more) {
  return {blocks * block.forward_s + more.forward_s, blocks * block.backward_s + more.backward_s,
          blocks * block.weight_gradient_s + more.weight_gradient_s};
}

double Idle(bool apart, double at_start_s, double at_end_s) {
  const double start_s = std::max(0.0, at_start_s);
  const double end_s = std::max(0.0, at_end_s);
  return apart ? start_s + end_s : std::max(start_s, end_s);
}

double Gpipe(const EndPasses& ends, double p, double m, double t) {
  const double forward_s =
      std::max({ends.first.forward_s, ends.inner.forward_s, ends.last.forward_s});
  const double backward_s =
      std::max({ends.first.backward_s, ends.inner.backward_s, ends.last.backward_s});
  return ends.all.total_s() + 2 * (p - 1) * t + (m - 1) * (forward_s + backward_s + 2 * t);
}

double OneForwardOneBackward(const EndPasses& ends, double p, double m, double t) {
  const double all_s = ends.all.total_s() + 2 * (p - 1) * t;
  const double forward_s = ends.first.forward_s;
  const double backward_s = ends.first.backward_s + t;
  const double after_s = all_s - forward_s - backward_s;
  const double others = std::min(p - 1, m - 1);
  const double first_s =
      m * (forward_s + backward_s) +
      Idle(m > p - 1, after_s - others * forward_s, after_s - others * backward_s);
  const double last_cycle_s = ends.last.total_s() + t;
  double least_s = std::max(first_s, all_s + (m - 1) * last_cycle_s);
  if (ends.has_inner) {
    const double inner_forward_s = ends.inner.forward_s + t;
    const double inner_backward_s = ends.inner.backward_s + t;
    const double cycle_s = inner_forward_s + inner_backward_s;
    const double one = std::min(1.0, m - 1);
    const double idle_s =
        Idle(m > 1, last_cycle_s - one * inner_forward_s, last_cycle_s - one * inner_backward_s);
    least_s = std::max(least_s, all_s - last_cycle_s - cycle_s + m * cycle_s + idle_s);
  }
  return least_s;
}

double Interleaved(const EndPasses& ends, double p, double m, double v, double t) {
  const double passes = m * v;
  const double forward_s = ends.first.forward_s / v;
  const double backward_s = ends.first.backward_s / v;
  const double all_s = ends.all.total_s() / v;
  const double after_s = all_s - forward_s - backward_s;
  const double warmup = std::min(passes, 2 * (p - 1) + (v - 1) * p);
  const double others = std::min(2 * (p - 1), passes - 1 - (v - 1) * p);
  const double first_s =
      passes * (forward_s + backward_s) +
      Idle(passes > warmup + 1, after_s - others * forward_s, after_s - others * backward_s) +
      (passes + warmup - 2) * t;
  const double last_warmup = std::min(passes, (v - 1) * p);
  const double last_s =
      all_s + (passes - 1) * ends.last.total_s() / v + (passes + last_warmup - 2) * t;
  return std::max(first_s, last_s);
}

double ZeroBubbleH1(const EndPasses& ends, double p, double m, double t) {
  const auto input_s = [](const PassSeconds& pass) {
    return pass.backward_s - pass.weight_gradient_s;
  };
  const double weight_s = ends.first.weight_gradient_s;
  const double forward_s = ends.first.forward_s;
  const double backward_s = input_s(ends.first) + t;
  const double after_s =
      ends.all.forward_s + input_s(ends.all) + 2 * (p - 1) * t - forward_s - backward_s;
  const double others = std::min(p - 1, m - 1);
  const double between = m - 1 - std::max(0.0, m - p);
  const double first_s =
      m * (forward_s + backward_s + weight_s) +
      Idle(m > p, after_s - others * forward_s, after_s - others * backward_s - between * weight_s);
  const double before_s = ends.all.forward_s - ends.last.forward_s + (p - 2) * t;
  const double back_s = input_s(ends.all) - input_s(ends.last) + (p - 1) * t + weight_s;
  const double last_s = before_s + m * (ends.last.forward_s + t + input_s(ends.last)) +
                        std::max(0.0, m - p) * ends.last.weight_gradient_s + back_s;
  double least_s = std::max(first_s, last_s);
  if (ends.has_inner) {
    const double inner_forward_s = ends.inner.forward_s + t;
    const double inner_backward_s = input_s(ends.inner) + t;
    const double one = std::min(1.0, m - 1);
    const double weights = std::max(0.0, m - (p - 1));
    const double inner_weight_s = ends.inner.weight_gradient_s;
    const double last_cycle_s = ends.last.forward_s + t + input_s(ends.last);
    const double idle_s = Idle(
        m > 2, last_cycle_s - one * inner_forward_s,
        last_cycle_s - one * inner_backward_s - (weights - std::max(0.0, m - p)) * inner_weight_s);
    const double ending_s = back_s - inner_backward_s;
    least_s =
        std::max(least_s, before_s - inner_forward_s + m * (inner_forward_s + inner_backward_s) +
                              weights * inner_weight_s + idle_s + ending_s);
  }
  return least_s;
}

// Returns whether dense blocks may reach the last two stages: the first stage's second chunk comes
// after the first of all others.
bool HasDenseChunksLate(const Pipeline& pipeline, const ScheduleChoice& choice) {
  if (pipeline.dense_blocks == 0 || choice.virtual_stages == 1) return false;
  const int64_t chunk_blocks =
      pipeline.num_blocks / (int64_t{pipeline.stages} * choice.virtual_stages);
  return pipeline.dense_blocks > std::max(1, pipeline.stages - 2) * chunk_blocks;
}

}  // namespace

PassSeconds SumOf(const PassCost& cost) {
  return {cost.forward.total_s(), cost.backward.total_s(), cost.weight_gradient_s};
}

double LeastSecondsOfAnySplit(int stages, int64_t num_blocks, int64_t microbatches,
                              const PassSeconds& block, bool shares_cores) {
  const auto blocks = static_cast<double>(num_blocks);
  const int64_t fullest = (num_blocks + stages - 1) / stages;
  const double passes = static_cast<double>(microbatches * fullest);
  const double busy_s = passes * block.total_s();
  if (shares_cores || stages == 1) return busy_s;
  const double there_s = blocks * block.forward_s;
  const double back_s = blocks * (block.backward_s - block.weight_gradient_s);
  return std::max({busy_s, there_s + passes * block.backward_s,
                   std::max(there_s, passes * block.forward_s) + back_s});
}

double LeastSecondsOfLoneSplits(const Pipeline& pipeline, ScheduleKind kind) {
  if (pipeline.shares_cores) return LeastSecondsOfAnySplit(pipeline);
  const PassSeconds both = Plus(1, pipeline.embedding, pipeline.head);
  const PassSeconds all = Plus(static_cast<double>(pipeline.num_blocks), pipeline.block, both);
  const double passes_s = all.total_s() + 2 * (pipeline.stages - 1) * pipeline.transfer_s;
  if (kind != ScheduleKind::kZeroBubbleH1) return passes_s;
  return passes_s - all.weight_gradient_s + pipeline.block.weight_gradient_s;
}

double LeastSecondsOfShapes(const Pipeline& pipeline, const ScheduleChoice& choice,
                            double passes_s) {
  if (pipeline.stages == 1 || choice.virtual_stages > 1 || pipeline.uneven) return passes_s;
  if (pipeline.microbatches == 1) {
    return std::min(passes_s, LeastSecondsOfLoneSplits(pipeline, choice.kind));
  }
  constexpr int kFewStages = 2;
  if (pipeline.stages > kFewStages) return passes_s;
  return std::min(passes_s, LeastSecondsOfAnySplit(pipeline));
}

std::optional<Split> BetterSplit(const Pipeline& pipeline) {
  if (pipeline.stages < 2 || pipeline.stages >= pipeline.num_blocks) return std::nullopt;
  const double block_s = pipeline.block.total_s();
  constexpr double kMostBlocks =
      1e6;  // that an end may weigh: beyond that it is the slowest anyway
  if (block_s <= 0) return std::nullopt;
  const double embedding = std::clamp(pipeline.embedding.total_s() / block_s, 0.0, kMostBlocks);
  const double head = std::min(kMostBlocks, pipeline.head.total_s() / block_s);
  constexpr double kAlmost = 1 - 1e-9;
  const double even = SlowestEvenStage(pipeline.num_blocks, pipeline.stages, embedding, head);
  // No split is below the mean, whole blocks or not, nor below what an end takes with one block.
  const int64_t fullest = (pipeline.num_blocks + pipeline.stages - 1) / pipeline.stages;
  const double all = static_cast<double>(pipeline.num_blocks) + embedding + head;
  const double least =
      std::max({static_cast<double>(fullest), all / pipeline.stages, 1 + embedding, 1 + head});
  if (least >= kAlmost * even) return std::nullopt;
  const Split split = BalancedSplit(pipeline.num_blocks, pipeline.stages, embedding, head);
  if (SlowestStage(split, embedding, head) >= kAlmost * even) return std::nullopt;
  return split;
}

LeastPasses::LeastPasses(const Pipeline& pipeline) : pipeline_(pipeline) {
  if (pipeline.uneven) return;
  const PassSeconds both = Plus(1, pipeline.embedding, pipeline.head);
  ends_.all = Plus(static_cast<double>(pipeline.num_blocks), pipeline.block, both);
  ends_.all = Plus(1, pipeline.first_waits, ends_.all);
  ends_.all = Plus(1, pipeline.last_waits, ends_.all);
}

// Neighbouring choices ask for the same, of which only chunks make other even splits.
void LeastPasses::SetEnds(const ScheduleChoice& choice) {
  Split split;
  if (choice.balanced) {
    CHECK(pipeline_.balanced);
    split = *pipeline_.balanced;
  } else {
    const EvenBlockCounts even(pipeline_.num_blocks, pipeline_.stages, choice.virtual_stages);
    split.first = even.Of(0);
    split.last = even.Of(pipeline_.stages - 1);
  }
  if (split_ == split) return;
  split_ = split;
  ends_.has_inner = choice.balanced && pipeline_.stages > 2;
  const int64_t inner = split.inner - (split.fewer == pipeline_.stages - 2 ? 1 : 0);
  ends_.inner = {};
  if (ends_.has_inner) ends_.inner = Plus(static_cast<double>(inner), pipeline_.block, {});
  ends_.first = Plus(static_cast<double>(split.first), pipeline_.block, pipeline_.embedding);
  ends_.first = Plus(1, pipeline_.first_waits, ends_.first);
  ends_.last = Plus(static_cast<double>(split.last), pipeline_.block, pipeline_.head);
  ends_.last = Plus(1, pipeline_.last_waits, ends_.last);
}

double LeastPasses::Of(const ScheduleChoice& choice) {
  const auto m = static_cast<double>(pipeline_.microbatches);
  const double p = pipeline_.stages;
  if (pipeline_.uneven || HasDenseChunksLate(pipeline_, choice)) {
    const auto blocks = static_cast<double>(pipeline_.num_blocks - pipeline_.dense_blocks);
    return m * blocks / p * pipeline_.block.total_s();
  }
  if (pipeline_.stages == 1) return m * ends_.all.total_s();
  SetEnds(choice);
  const double busy_s =
      m * std::max({ends_.first.total_s(), ends_.inner.total_s(), ends_.last.total_s()});
  if (pipeline_.shares_cores) return busy_s;
  const double t = pipeline_.transfer_s;
  switch (choice.kind) {
    case ScheduleKind::kGpipe:
      return std::max(busy_s, Gpipe(ends_, p, m, t));
    case ScheduleKind::kOneForwardOneBackward:
      return std::max(busy_s, OneForwardOneBackward(ends_, p, m, t));
    case ScheduleKind::kInterleaved:
      if (choice.ragged && pipeline_.microbatches % pipeline_.stages != 0) return busy_s;
      return std::max(busy_s, Interleaved(ends_, p, m, choice.virtual_stages, t));
    case ScheduleKind::kZeroBubbleH1:
      return std::max(busy_s, ZeroBubbleH1(ends_, p, m, t));
  }
  return busy_s;
}

}  // namespace weft
