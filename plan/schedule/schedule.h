// A schedule is data: the list of everything one rank does in a step, in order. The planner prices
// this very list, the simulator runs it dry, the worker executes it. Transfers are derived from the
// compute order, never written by hand. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/spec/layout.h"

namespace weft {

enum class Op {
  kForward,
  kBackward,        // gradients of input and weights
  kBackwardInput,   // zb_h1: gradient of the input, which the stage before waits for
  kBackwardWeight,  // zb_h1: gradients of the weights, for which nobody waits
  kRecvActivation,
  kSendActivation,
  kRecvGradient,
  kSendGradient,
  kReduceTiedEmbedding,  // sum of the tied embedding's gradient over first and last stage
  kReduceGradients,      // starts to sum over the data group what is left to sum, one bucket
  kAwaitGradients,       // until these sums are there
  kReduceParts,  // sum over tp of the gradients that tp ranks made parts of (plan/shards/shard)
  kReduceNorm,   // squared gradient norm, loss, stop flag: over all ranks, in double
  kUpdate,       // clip and optimizer, of this rank's parts
  kGatherParameters,  // all parts of one bucket's weights, from the ranks that updated them
};

struct Action {
  Op op = Op::kForward;
  int chunk = 0;       // for passes and transfers: of the blocks that this rank holds
  int microbatch = 0;  // for passes and transfers
  int bucket = 0;      // for kReduceGradients and kGatherParameters: of plan/shards/buckets.h
  friend bool operator==(const Action&, const Action&) = default;
};

// Compute order of `stage` of `stages` for `microbatches`: passes only.
// Huang et al., arXiv:1811.06965 (GPipe): all forwards, then all backwards in the same order.
std::vector<Action> Gpipe(int microbatches);
// Narayanan et al., SC'21, 2.2.1: never holds more than `stages - stage` microbatches' activations.
std::vector<Action> OneForwardOneBackward(int stage, int stages, int microbatches);
// Narayanan et al., SC'21, 2.2.2: each stage holds `chunks` chunks of blocks, a microbatch passes
// all stages once per chunk. Chunks take turns after every InterleavedTurn microbatches.
// REQUIRES: microbatches >= stages, chunks >= 2, stages >= 2.
std::vector<Action> Interleaved(int stage, int stages, int microbatches, int chunks);
// Returns `stages` where they divide the microbatches, else as few more as leave nothing or at
// least `stages` for the last turn.
int64_t InterleavedTurn(int64_t stages, int64_t microbatches);
// Qi et al., arXiv:2401.10241, 2.2 (ZB-H1): as 1F1B, but later stages put weight gradients off,
// by one microbatch per stage, so that input gradients reach the earlier ones sooner.
std::vector<Action> ZeroBubbleH1(int stage, int stages, int microbatches);
// The order of `kind`. A pipeline of one stage has no bubble to put weight gradients into: zb_h1 is
// 1f1b there.
std::vector<Action> ComputeOrder(ScheduleKind kind, int stage, int stages, int microbatches,
                                 int chunks = 1);

// Adds the transfers that `compute` implies: what each pass needs, before it; what it yields,
// after. Virtual stage chunk * stages + stage sends to the next one, so the last stage's chunk
// feeds the first stage's next. A transfer stands where both of its ends come to a pause, so that
// no stage waits in a send for one that is busy (schedule.cc says where that is).
std::vector<Action> WithTransfers(int stage, int stages, absl::Span<const Action> compute,
                                  int chunks = 1);

// The stage at the other end of a transfer of `stage`.
int PeerStage(Op transfer, int stage, int stages);

// Forward passes only, with their transfers: validation.
std::vector<Action> EvaluationSchedule(int stage, int stages, int microbatches, int chunks = 1);

// Forward, backward or a half of it.
inline bool IsPass(Op op) {
  return op >= Op::kForward && op <= Op::kBackwardWeight;
}
inline bool IsTransfer(Op op) {
  return op >= Op::kRecvActivation && op <= Op::kSendGradient;
}

// Splits into runs: each maximal run of neighbouring transfers is one group (they are posted
// together, so neighbours may send to each other at once); a pass and the reductions that start
// inside it are one; every other action is its own group.
std::vector<absl::Span<const Action>> Groups(absl::Span<const Action> actions);

// Most microbatches whose activations this order holds at once, counted once per chunk: from the
// forward pass to the end of the backward pass, weight gradients included.
int PeakLiveMicrobatches(absl::Span<const Action> actions);

// The same for the schedule of `layout`, without walking it.
int64_t PeakLiveMicrobatches(const Layout& layout, int stage);

// Blocks times microbatches that keep activations at once: each pass from its forward to its
// backward pass, weight gradients included, those of its chunk's blocks. REQUIRES: CheckLayout
// holds.
int64_t PeakLiveBlocks(const Layout& layout, int64_t num_blocks, int stage);

// Says whether backward passes come in halves: under zb_h1, in a pipeline of several stages.
bool SplitsBackward(const Layout& layout);

// Microbatches between the halves of their backward pass at once, the one at hand included: 0 but
// where these are split.
int64_t PeakPendingMicrobatches(const Layout& layout, int stage);

// "F0", "B3", "W3", "recv_act2", "reduce_grads0", "await_grads", "update"; of later chunks "F0.1".
// An input gradient is a "B", as in the papers.
std::string ActionText(const Action& action);
// "stage 1 | F0 F1 F2 B0 F3 B1 ..."; transfers shown only if present in `actions`.
std::string ScheduleText(int stage, absl::Span<const Action> actions);

}  // namespace weft
