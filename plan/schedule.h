// A schedule is data: the list of everything one rank does in a step, in order. The planner prices
// this very list, the simulator runs it dry, the worker executes it. Transfers are derived from the
// compute order, never written by hand. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/layout.h"

namespace weft {

enum class Op {
  kForward,
  kBackward,
  kRecvActivation,
  kSendActivation,
  kRecvGradient,
  kSendGradient,
  kReduceTiedEmbedding,  // sum of the tied embedding's gradient over first and last stage
  kReduceGradients,      // sum over the data axis, one bucket
  kReduceNorm,           // squared gradient norm, loss, stop flag: over all ranks, in double
  kUpdate,               // clip and optimizer
};

struct Action {
  Op op = Op::kForward;
  int chunk = 0;       // virtual stage
  int microbatch = 0;  // for compute and transfers
  int bucket = 0;      // for kReduceGradients
  friend bool operator==(const Action&, const Action&) = default;
};

// Compute order of `stage` of `stages` for `microbatches`: forwards and backwards only.
// Huang et al., arXiv:1811.06965 (GPipe): all forwards, then all backwards in the same order.
std::vector<Action> Gpipe(int microbatches);
// Narayanan et al., SC'21, 2.2.1: never holds more than `stages - stage` microbatches' activations.
std::vector<Action> OneForwardOneBackward(int stage, int stages, int microbatches);
std::vector<Action> ComputeOrder(ScheduleKind kind, int stage, int stages, int microbatches);

// Adds the transfers that `compute` implies: what each action needs, before it; what it yields,
// after.
std::vector<Action> WithTransfers(int stage, int stages, absl::Span<const Action> compute);

// The whole step of a rank on `stage`: WithTransfers(ComputeOrder), then reductions, norm, update.
// `tied` : the model ties its embeddings. Reductions that have nobody to talk to are left out.
std::vector<Action> StepSchedule(const Layout& layout, int stage, bool tied);

// Forward passes only, with their transfers: validation.
std::vector<Action> EvaluationSchedule(int stage, int stages, int microbatches);

bool IsTransfer(Op op);

// Splits into runs: each maximal run of neighbouring transfers is one group (they are posted
// together, so neighbours may send to each other at once); every other action is its own group.
std::vector<absl::Span<const Action>> Groups(absl::Span<const Action> actions);

// Most microbatches whose activations this order holds at once.
int PeakLiveMicrobatches(absl::Span<const Action> actions);

std::string ActionText(const Action& action);  // "F0", "B3", "recv_act2", "reduce_grads0", "update"
// "stage 1 | F0 F1 F2 B0 F3 B1 ..."; transfers shown only if present in `actions`.
std::string ScheduleText(int stage, absl::Span<const Action> actions);

}  // namespace weft
