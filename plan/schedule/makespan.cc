#include "plan/schedule/makespan.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "plan/errors.h"

namespace weft {
namespace {

// All forwards pass as in a flow shop of equal jobs, then all backwards. Each border is crossed
// once to fill and once to drain, then a stage exchanges once per pass.
double GpipeSeconds(absl::Span<const ActionSeconds> stages, double microbatches) {
  double fill_s = 0;
  double slowest_forward_s = 0;
  double slowest_backward_s = 0;
  for (const ActionSeconds& stage : stages) {
    fill_s += stage.forward_s + stage.backward_s;
    slowest_forward_s = std::max(slowest_forward_s, stage.forward_s);
    slowest_backward_s = std::max(slowest_backward_s, stage.backward_s);
  }
  const auto borders = static_cast<double>(stages.size() - 1);
  const double exchange_s = borders > 0 ? 2 * stages.front().transfer_s : 0;
  return fill_s + borders * exchange_s +
         (microbatches - 1) * (slowest_forward_s + slowest_backward_s + exchange_s);
}

// Every stage bounds the step: the first microbatch has to reach it and the last to leave it, in
// between it is busy, but for what the stages after it need longer than its own warmup forwards
// (and, at the end, its cooldown backwards) to turn a microbatch around. Each pass pays for what it
// receives.
double OneForwardOneBackwardSeconds(absl::Span<const ActionSeconds> stages, double microbatches) {
  const size_t last = stages.size() - 1;
  const auto forward_s = [&](size_t stage) {
    return stages[stage].forward_s + (stage > 0 ? stages[stage].transfer_s : 0);
  };
  const auto backward_s = [&](size_t stage) {
    return stages[stage].backward_s + (stage < last ? stages[stage].transfer_s : 0);
  };
  double after_s = 0;
  for (size_t stage = 0; stage <= last; ++stage) after_s += forward_s(stage) + backward_s(stage);
  double before_s = 0;
  double bound_s = 0;
  for (size_t stage = 0; stage <= last; ++stage) {
    const double cycle_s = forward_s(stage) + backward_s(stage);
    after_s -= cycle_s;
    const auto warmup = static_cast<double>(last - stage);
    const double others = std::min(warmup, microbatches - 1);
    const double at_start_s = std::max(0.0, after_s - others * forward_s(stage));
    const double at_end_s = std::max(0.0, after_s - others * backward_s(stage));
    // With few microbatches the two waits are one and the same.
    const double idle_s =
        microbatches > warmup ? at_start_s + at_end_s : std::max(at_start_s, at_end_s);
    bound_s = std::max(bound_s, before_s + microbatches * cycle_s + idle_s);
    before_s += cycle_s;
  }
  return bound_s;
}

// The bound is that of 1F1B, by passes of a chunk: each stage waits for the others' turn-around of
// the last chunk's first microbatch before its first backward, and again for that of the last.
// Transfers of a forward and a backward that are a pair are exchanged at once.
double InterleavedSeconds(absl::Span<const ActionSeconds> stages, double microbatches,
                          double chunks) {
  const auto count = static_cast<double>(stages.size());
  const auto turn =
      static_cast<double>(InterleavedTurn(std::ssize(stages), static_cast<int64_t>(microbatches)));
  const double passes = microbatches * chunks;
  double after_s = 0;
  for (const ActionSeconds& stage : stages) after_s += stage.forward_s + stage.backward_s;
  double before_s = 0;
  double bound_s = 0;
  for (size_t i = 0; i < stages.size(); ++i) {
    const ActionSeconds& stage = stages[i];
    const double cycle_s = stage.forward_s + stage.backward_s;
    after_s -= cycle_s;
    const double ahead = 2 * (count - 1 - static_cast<double>(i));
    const double warmup = std::min(passes, ahead + (chunks - 1) * turn);
    const double others = std::min(ahead, passes - 1 - (chunks - 1) * turn);
    const double at_start_s = std::max(0.0, after_s - others * stage.forward_s);
    const double at_end_s = std::max(0.0, after_s - others * stage.backward_s);
    // Nothing is sure of longer turns but the backwards, without the last chunk's.
    const double paid = turn > count ? passes - microbatches : passes + warmup - 2;
    const double idle_s =
        passes > warmup + 1 ? at_start_s + at_end_s : std::max(at_start_s, at_end_s);
    bound_s = std::max(bound_s, before_s + passes * cycle_s + idle_s + paid * stage.transfer_s);
    before_s += cycle_s;
  }
  return bound_s;
}

// The bound is that of 1F1B, with input gradients (b) in the place of backwards and weight
// gradients (w) where they are put. After its last input gradient a stage has some weight gradients
// left, and each stage before it has its own last input gradient and what it has left.
double ZeroBubbleH1Seconds(absl::Span<const ActionSeconds> stages, double microbatches) {
  const size_t last = stages.size() - 1;
  const auto forward_s = [&](size_t i) {
    return stages[i].forward_s + (i > 0 ? stages[i].transfer_s : 0);
  };
  const auto backward_s = [&](size_t i) {
    return stages[i].backward_s - stages[i].weight_gradient_s +
           (i < last ? stages[i].transfer_s : 0);
  };
  const auto left_s = [&](size_t i) {
    return std::min(static_cast<double>(i) + 1, microbatches) * stages[i].weight_gradient_s;
  };
  double after_s = 0;
  for (size_t i = 0; i <= last; ++i) after_s += forward_s(i) + backward_s(i);
  double before_s = 0;  // forwards of the stages before
  double ending_s = 0;  // from this stage's last input gradient to the end, through the others
  double bound_s = 0;
  for (size_t i = 0; i <= last; ++i) {
    const double weight_s = stages[i].weight_gradient_s;
    after_s -= forward_s(i) + backward_s(i);
    const double warmup = static_cast<double>(last - i);
    const double others = std::min(warmup, microbatches - 1);
    const double put_off = static_cast<double>(i) + 1;
    const double weights = std::max(0.0, microbatches - put_off);  // before the last backward
    const double weights_between =
        weights - std::max(0.0, microbatches - static_cast<double>(stages.size()));
    const double at_start_s = std::max(0.0, after_s - others * forward_s(i));
    const double at_end_s =
        std::max(0.0, after_s - others * backward_s(i) - weights_between * weight_s);
    const double idle_s =
        microbatches > warmup + 1 ? at_start_s + at_end_s : std::max(at_start_s, at_end_s);
    const double last_input_s =
        before_s + microbatches * (forward_s(i) + backward_s(i)) + weights * weight_s + idle_s;
    ending_s = std::max(ending_s, left_s(i));
    bound_s = std::max(bound_s, last_input_s + ending_s);
    before_s += forward_s(i);
    ending_s += backward_s(i);
  }
  return bound_s;
}

// Rounds of a dry run, of a microbatch per stage. Where the last of them is not yet as long as the
// one before, twice as many are tried.
constexpr int64_t kRounds = 3;
constexpr double kSteady = 1e-9;

bool IsClose(double a_s, double b_s) {
  return std::abs(a_s - b_s) <= kSteady * b_s;
}

// Seconds of the last round before the pipeline drains, if that is the pace at which it goes on:
// all stages keep it, for a second time, and it is no shorter than what the slowest computes.
std::optional<double> SteadyRoundSeconds(const Simulation& simulation, int last_chunk,
                                         double slowest_s) {
  const size_t round = simulation.timeline.size();
  std::optional<double> round_s;
  for (const std::vector<TimedAction>& stage : simulation.timeline) {
    std::vector<double> ends_s;  // of forward passes
    for (const TimedAction& timed : stage) {
      if (timed.action.op != Op::kForward || timed.action.chunk != last_chunk) continue;
      ends_s.push_back(timed.end_s);
    }
    if (ends_s.size() <= 2 * round) return std::nullopt;
    const size_t last = ends_s.size() - 1;
    const double own_s = ends_s[last] - ends_s[last - round];
    const double before_s = ends_s[last - round] - ends_s[last - 2 * round];
    if (!round_s) round_s = own_s;
    if (!IsClose(own_s, *round_s) || !IsClose(before_s, *round_s)) return std::nullopt;
  }
  if (*round_s < (1 - kSteady) * static_cast<double>(round) * slowest_s) return std::nullopt;
  return round_s;
}

// Seconds until all passes of the interleaved schedule are done where a stage takes what it is sent
// whenever it comes: each pass waits for the one before it on its stage and for its input alone.
// Chunks whose turns are longer than the pipeline (InterleavedTurn) are sent to passes ahead of
// their need, which transfers in pairs (WithTransfers) cannot do.
absl::StatusOr<double> BufferedSeconds(int stages, absl::Span<const ActionSeconds> chunks,
                                       int microbatches) {
  const int last = static_cast<int>(chunks.size()) - 1;  // the last virtual stage
  const int per_stage = (last + 1) / stages;
  std::vector<std::vector<Action>> orders;
  for (int stage = 0; stage < stages; ++stage) {
    orders.push_back(Interleaved(stage, stages, microbatches, per_stage));
  }
  const auto count = static_cast<size_t>(microbatches);
  std::vector<double> forward_ends_s(chunks.size() * count, -1), backward_ends_s(forward_ends_s);
  const auto place = [&](int chunk, const Action& pass) {
    return static_cast<size_t>(chunk) * count + static_cast<size_t>(pass.microbatch);
  };
  std::vector<size_t> next(orders.size(), 0);
  std::vector<double> free_s(orders.size(), 0);
  size_t left = 2 * chunks.size() * count;
  while (left > 0) {
    const size_t before = left;
    for (size_t stage = 0; stage < orders.size(); ++stage) {
      for (; next[stage] < orders[stage].size(); ++next[stage], --left) {
        const Action& pass = orders[stage][next[stage]];
        const int chunk = pass.chunk * stages + static_cast<int>(stage);
        const ActionSeconds& own = chunks[static_cast<size_t>(chunk)];
        const bool forward = pass.op == Op::kForward;
        double input_s = 0;  // when it is there
        if (forward && chunk > 0) input_s = forward_ends_s[place(chunk - 1, pass)];
        if (!forward) {
          input_s = chunk < last ? backward_ends_s[place(chunk + 1, pass)]
                                 : forward_ends_s[place(chunk, pass)];
        }
        if (input_s < 0) break;
        // A pass pays for what it receives, a forward and the backward after it once.
        const bool is_pair = forward && next[stage] + 1 < orders[stage].size() &&
                             orders[stage][next[stage] + 1].op == Op::kBackward;
        const bool received = forward ? chunk > 0 && !is_pair : chunk < last;
        free_s[stage] = std::max(free_s[stage], input_s) + (received ? own.transfer_s : 0) +
                        (forward ? own.forward_s : own.backward_s);
        (forward ? forward_ends_s : backward_ends_s)[place(chunk, pass)] = free_s[stage];
      }
    }
    if (left == before) return absl::InternalError("the interleaved schedule waits for itself");
  }
  return *std::max_element(free_s.begin(), free_s.end());
}

double SlowestCycleSeconds(int stages, absl::Span<const ActionSeconds> chunks) {
  std::vector<double> cycles_s(static_cast<size_t>(stages));
  for (size_t i = 0; i < chunks.size(); ++i) {
    cycles_s[i % cycles_s.size()] += chunks[i].forward_s + chunks[i].backward_s;
  }
  return *std::max_element(cycles_s.begin(), cycles_s.end());
}

}  // namespace

double PipelineSeconds(ScheduleKind kind, absl::Span<const ActionSeconds> stages,
                       int64_t microbatches, int chunks) {
  CHECK(!stages.empty() && microbatches >= 1 && chunks >= 1);
  const auto count = static_cast<double>(microbatches);
  switch (kind) {
    case ScheduleKind::kGpipe:
      return GpipeSeconds(stages, count);
    case ScheduleKind::kOneForwardOneBackward:
      return OneForwardOneBackwardSeconds(stages, count);
    case ScheduleKind::kInterleaved:
      return InterleavedSeconds(stages, count, chunks);
    case ScheduleKind::kZeroBubbleH1:
      return ZeroBubbleH1Seconds(stages, count);
  }
  CHECK(false);
  return 0;
}

absl::StatusOr<double> DryRunSeconds(ScheduleKind kind, int stages,
                                     absl::Span<const ActionSeconds> chunks, int64_t microbatches) {
  CHECK(stages >= 2 && microbatches >= 1 && !chunks.empty());
  CHECK(chunks.size() % static_cast<size_t>(stages) == 0);
  // Its forwards are over before the first backward: no round is like all others.
  if (kind == ScheduleKind::kGpipe) return PipelineSeconds(kind, chunks, microbatches);
  const int chunks_per_stage = static_cast<int>(chunks.size()) / stages;
  if (kind == ScheduleKind::kInterleaved && microbatches % stages != 0) {
    return BufferedSeconds(stages, chunks, static_cast<int>(microbatches));
  }
  const double slowest_s = SlowestCycleSeconds(stages, chunks);
  for (int64_t rounds = kRounds;; rounds *= 2) {
    const int64_t left = std::max<int64_t>(0, microbatches / stages - rounds);
    const int replayed = static_cast<int>(microbatches - left * stages);
    std::vector<std::vector<Action>> actions;
    for (int stage = 0; stage < stages; ++stage) {
      // These are the actions of StepSchedule that take time in a dry run.
      actions.push_back(WithTransfers(stage, stages,
                                      ComputeOrder(kind, stage, stages, replayed, chunks_per_stage),
                                      chunks_per_stage));
    }
    Simulation simulation;
    ASSIGN_OR_RETURN(simulation, Simulate(actions, chunks));
    if (left == 0) return simulation.makespan_s;
    const std::optional<double> round_s =
        SteadyRoundSeconds(simulation, chunks_per_stage - 1, slowest_s);
    if (round_s) return simulation.makespan_s + static_cast<double>(left) * *round_s;
  }
}

}  // namespace weft
