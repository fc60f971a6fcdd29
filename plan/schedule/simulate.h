// Dry run of all stages of a schedule: proves that it ends under rendezvous sends (both ends must
// be at the transfer), and gives time, bubble and peak live activations. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "plan/schedule/schedule.h"

namespace weft {

// These are the durations of one microbatch's passes through one chunk.
struct ActionSeconds {
  double forward_s = 1;
  double backward_s = 2;         // input and weight gradients
  double transfer_s = 0;         // to the next chunk, or back
  double weight_gradient_s = 0;  // of backward_s: what zb_h1 splits off
};

// A forward or backward pass (or half of one) as it ran in a dry run. Gaps between neighbours are
// bubble, or transfers.
struct TimedAction {
  Action action;
  double start_s = 0;
  double end_s = 0;
};

struct Simulation {
  double makespan_s = 0;       // start to the last action of any stage
  double bubble_fraction = 0;  // share of stage-seconds without compute (idle or transfers)
  std::vector<int> peak_live;  // per stage: most microbatches held at once, by chunk
  std::vector<double> busy_s;  // per stage: forward and backward passes
  // A picture of the schedule shows this: the passes of each stage, in the order of time.
  std::vector<std::vector<TimedAction>> timeline;
};

// `stages[i]` is stage i's action list. `seconds`: one entry if all chunks of all stages are alike,
// else one per stage, or one per virtual stage (chunk * stages + stage). Internal error naming the
// stuck stages and actions if the schedules deadlock or disagree about a transfer. Reductions, norm
// and update take no time here.
absl::StatusOr<Simulation> Simulate(absl::Span<const std::vector<Action>> stages,
                                    absl::Span<const ActionSeconds> seconds);

// The same with durations as they were measured: pass_s[i][k] of the k-th pass in stage i's list,
// and one of all transfers.
absl::StatusOr<Simulation> Replay(absl::Span<const std::vector<Action>> stages,
                                  absl::Span<const std::vector<double>> pass_s, double transfer_s);

}  // namespace weft
