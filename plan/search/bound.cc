#include "plan/search/bound.h"

#include <algorithm>

namespace weft {
namespace {

PassSeconds Plus(double blocks, const PassSeconds& block, const PassSeconds& more) {
  return {blocks * block.forward_s + more.forward_s, blocks * block.backward_s + more.backward_s,
          blocks * block.weight_gradient_s + more.weight_gradient_s};
}

// Blocks of `stage`, of pp * chunks parts as even as possible, the first parts the larger.
double EvenBlocks(const EvenPipeline& pipeline, int64_t chunks, int64_t stage) {
  const int64_t parts = pipeline.stages * chunks;
  const int64_t remainder = pipeline.num_blocks % parts;
  const int64_t larger =
      remainder > stage ? (remainder - stage + pipeline.stages - 1) / pipeline.stages : 0;
  const int64_t blocks = chunks * (pipeline.num_blocks / parts) + larger;
  return static_cast<double>(blocks);
}

struct Ends {
  PassSeconds first, last, all;
};

Ends EndsOf(const EvenPipeline& pipeline, int chunks) {
  const PassSeconds ends = Plus(1, pipeline.embedding, pipeline.head);
  return {.first = Plus(EvenBlocks(pipeline, chunks, 0), pipeline.block, pipeline.embedding),
          .last = Plus(EvenBlocks(pipeline, chunks, pipeline.stages - 1), pipeline.block,
                       pipeline.head),
          .all = Plus(static_cast<double>(pipeline.num_blocks), pipeline.block, ends)};
}

double Idle(bool apart, double at_start_s, double at_end_s) {
  const double start_s = std::max(0.0, at_start_s);
  const double end_s = std::max(0.0, at_end_s);
  return apart ? start_s + end_s : std::max(start_s, end_s);
}

double Gpipe(const Ends& ends, double p, double m, double t) {
  const double forward_s = std::max(ends.first.forward_s, ends.last.forward_s);
  const double backward_s = std::max(ends.first.backward_s, ends.last.backward_s);
  return ends.all.total_s() + 2 * (p - 1) * t + (m - 1) * (forward_s + backward_s + 2 * t);
}

double OneForwardOneBackward(const Ends& ends, double p, double m, double t) {
  const double all_s = ends.all.total_s() + 2 * (p - 1) * t;
  const double forward_s = ends.first.forward_s;
  const double backward_s = ends.first.backward_s + t;
  const double after_s = all_s - forward_s - backward_s;
  const double others = std::min(p - 1, m - 1);
  const double first_s =
      m * (forward_s + backward_s) +
      Idle(m > p - 1, after_s - others * forward_s, after_s - others * backward_s);
  const double last_cycle_s = ends.last.total_s() + t;
  return std::max(first_s, all_s + (m - 1) * last_cycle_s);
}

double Interleaved(const Ends& ends, double p, double m, double v, double t) {
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

double ZeroBubbleH1(const Ends& ends, double p, double m, double t) {
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
  return std::max(first_s, last_s);
}

}  // namespace

PassSeconds SumOf(const PassCost& cost) {
  return {cost.forward.total_s(), cost.backward.total_s(), cost.weight_gradient_s};
}

double LeastPassesSeconds(const EvenPipeline& pipeline, const ScheduleChoice& choice) {
  const auto m = static_cast<double>(pipeline.microbatches);
  const double p = pipeline.stages;
  if (pipeline.uneven) {
    return m * static_cast<double>(pipeline.num_blocks) / p * pipeline.block.total_s();
  }
  const Ends ends = EndsOf(pipeline, choice.virtual_stages);
  const double busy_s = m * std::max(ends.first.total_s(), ends.last.total_s());
  if (pipeline.stages == 1) return m * ends.all.total_s();
  if (pipeline.shares_cores) return busy_s;
  const double t = pipeline.transfer_s;
  switch (choice.kind) {
    case ScheduleKind::kGpipe:
      return std::max(busy_s, Gpipe(ends, p, m, t));
    case ScheduleKind::kOneForwardOneBackward:
      return std::max(busy_s, OneForwardOneBackward(ends, p, m, t));
    case ScheduleKind::kInterleaved:
      return std::max(busy_s, Interleaved(ends, p, m, choice.virtual_stages, t));
    case ScheduleKind::kZeroBubbleH1:
      return std::max(busy_s, ZeroBubbleH1(ends, p, m, t));
  }
  return busy_s;
}

PassSeconds MostOfAStage(const EvenPipeline& pipeline, const ScheduleChoice& choice) {
  const Ends ends = EndsOf(pipeline, choice.virtual_stages);
  if (pipeline.stages == 1 || pipeline.uneven) return ends.all;
  return {.forward_s = std::max(ends.first.forward_s, ends.last.forward_s),
          .backward_s = std::max(ends.first.backward_s, ends.last.backward_s),
          .weight_gradient_s = std::max(ends.first.weight_gradient_s, ends.last.weight_gradient_s)};
}

}  // namespace weft
