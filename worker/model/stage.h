// Stage: this rank's part of the network, and the activations that its live microbatches keep. It
// carries out the compute and transfer actions of a schedule, in whatever order the schedule has,
// and starts the reductions that begin inside a pass. What else is reduced, norm and update are the
// trainer's. Used by the trainer's thread.
//
// Slots: a microbatch's pass through a chunk keeps its activations in slots, one for each block,
// the first that are free, from the moment its input arrives to the end of its backward pass; there
// are as many as the schedule needs at once (ActivationSlotsOf in plan/memory/memory). Which are
// free depends on the actions before alone: each step has the operands of the step before.
//
// Stretches: what the blocks of a chunk queue in a pass is the same in each pass of the chunk that
// has the same slots. A device may replay it (Device::Replay) where nothing moves between ranks
// within it.
#pragma once
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "plan/block/block_ops.h"
#include "plan/memory/memory.h"
#include "plan/schedule/schedule.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "worker/backend/device.h"
#include "worker/model/block.h"
#include "worker/model/embedding.h"
#include "worker/model/head.h"
#include "worker/model/token_cut.h"
#include "worker/state/arena.h"
#include "worker/state/fp8_linear.h"
#include "worker/state/groups.h"
#include "worker/state/parameters.h"
#include "worker/state/zero.h"

namespace weft {

// The tokens of all microbatches of a step, in order [microbatches * N] each; empty where the
// stage has no use for them.
struct StepTokens {
  absl::Span<const int32_t> ids;              // first stage
  absl::Span<const int32_t> targets;          // last stage
  absl::Span<const int32_t> positions;        // first stage: rows of the table of learned positions
  absl::Span<const int32_t> first_visible;    // where each token's document starts, if that matters
  absl::Span<const int32_t> first_in_window;  // its window, within that; if the model has one
};

// Evaluation runs forward passes only, for their loss; under precision fp8 in bf16.
enum class Pass { kTraining, kEvaluation };

class Stage {
 public:
  // Asks the arena for every buffer but the parameters'. Borrows `zero`, `device` and `groups`.
  // Passes add the cross-entropy over their tokens to `loss` [1, 1], on the last stage alone: the
  // same on each tp rank.
  Stage(const ModelShape& model, const BatchShape& batch, const Numerics& numerics,
        const Parameters& parameters, View loss, Zero& zero, Arena& arena, Device& device,
        RankGroups& groups);

  // Starts a step's pass.
  void Begin(Pass pass, const StepTokens& tokens);

  // `reductions`: kReduceGradients of buckets with whose gradients this pass is through for the
  // step; each starts as soon as it is. REQUIRES: IsPass(action.op).
  absl::Status Compute(const Action& action, absl::Span<const Action> reductions = {});
  // Carries out neighbouring transfers together.
  absl::Status Exchange(absl::Span<const Action> transfers);

  // Gradients of the passes to come are `factor` times those of the loss; 1 at first.
  void ScaleLoss(double factor) { loss_scale_ = factor; }

  // Head::SetTerms, on the last stage.
  void SetLossTerms(double z_weight, double smoothing) {
    if (head_) head_->SetTerms(z_weight, smoothing);
  }

  // Device::PrepareAttention of the stage's calls, which all have one shape but for the bound of
  // their documents: what it says, of ranges of these where that differs.
  std::string PrepareAttention() const;

 private:
  // Slots of a chunk's blocks. Empty: the pass is not live.
  using Slots = std::vector<const BlockActivations*>;
  // A pass holds this between the halves of its backward pass, on top of its slots.
  struct Pending {
    std::vector<BlockActivations> blocks;  // what the first half made again
    View dy;                               // [R, D] of the last block's output
  };

  // Holds the elements of an array that are free, the first on top.
  template <typename T>
  using Free = std::priority_queue<T*, std::vector<T*>, std::greater<>>;

  void MakeFp8(const ModelShape& model, const Fp8Layers& layers, const Parameters& parameters,
               Arena& arena);
  void MakeChunks(const ModelShape& model, const BatchShape& batch, const Parameters& parameters);
  void MakeSlots(const ActivationSlots& counts, int64_t hidden, Arena& arena);
  // Whether the blocks' part of a pass, between waits, is their work on this rank alone.
  bool IsStretch(const Action& action) const;
  // Whether blocks of a forward pass wait for weights that the update before has changed: its
  // stretches then lie between the waits, a block each.
  bool WaitsForWeights(const Action& action) const;
  // Queues the blocks' part of a pass, or one's, or has the device replay it. `operands`: with its
  // slots, all that it is given and that is not the same in every such pass through its chunk.
  absl::Status QueueStretch(const Action& action, std::initializer_list<const void*> operands,
                            absl::FunctionRef<absl::Status()> blocks);
  Slots& PassOf(const Action& action);
  Slots& SlotsOf(const Action& action);  // of a live pass
  Slots& TakeSlots(const Action& action);
  void FreeSlots(const Action& action);
  const BlockActivations& ForwardScratch() const;
  View HeadGradient(const Action& action);
  // Weights have changed since their codes were made.
  void OutdateCodes();
  // Sets each microbatch's bound of documents from `first_visible` of a step's tokens.
  void CountDocuments(absl::Span<const int32_t> first_visible);
  std::string PrepareFullAttention(const Block& block) const;
  View MicrobatchOf(View step_tokens, int microbatch) const;  // no data if there is none
  bool TakesTokens(const Action& action) const;               // the pass starts at the embedding
  bool MakesLoss(const Action& action) const;                 // it ends in the head

  absl::Status Forward(const Action& action);
  absl::Status ForwardHead(const Action& action);
  absl::Status Backward(const Action& action);
  absl::Status BackwardInput(const Action& action);
  absl::Status BackwardWeight(const Action& action);
  absl::Status BackwardEmbedding(const Action& action, View dx);
  bool StartsReduction(int bucket) const;  // when the action in progress is through with it
  absl::Status CloseGradients(int bucket);
  View StartBackward(const Action& action);

  const Layout layout_;
  const View loss_;
  Zero& zero_;
  Device& device_;
  RankGroups& groups_;
  const int64_t seq_len_;     // T
  const int64_t rows_;        // N = B * T / cp
  TokenCut tokens_;           // of them, R are on this rank
  const double token_share_;  // 1 / tokens of the global batch
  double loss_scale_ = 1;
  FusedLinears fused_;
  BlockLists lists_;
  std::optional<Fp8Linear> fp8_;            // precision fp8, where any layer is
  std::vector<Fp8Codes> codes_;             // by block of the stage; empty: not kept
  std::vector<std::vector<Block>> chunks_;  // by chunk
  std::vector<BlockActivations> slots_;
  Free<const BlockActivations> free_slots_;
  std::vector<Slots> live_;        // by chunk, then microbatch
  BlockActivations recomputed_;    // of all blocks; null views where backward is split
  std::vector<Pending> pendings_;  // split backward only
  Free<Pending> free_pendings_;
  std::vector<Pending*> pending_;  // by microbatch; null: not between halves
  BlockWorkspace work_;
  std::optional<Embedding> embedding_;  // first stage
  std::optional<Head> head_;            // last stage
  std::vector<View> head_gradients_;    // last stage, [R, D]: of microbatch m at m % their number
  // [microbatches * N, 1]: StepTokens
  View ids_, targets_, positions_, first_visible_, first_in_window_;
  const std::vector<int64_t> document_bounds_;  // DocumentBoundsOf
  std::vector<int64_t> documents_;  // of each microbatch, one of them; 0: more, or not counted
  // Where a chunk has another one after it, [R, D]:
  View dx_, recv_gradient_, send_activation_;
  Pass pass_ = Pass::kTraining;
  // Keys of Device::Replay, by all that a stretch's operands go by; as many as passes of a step.
  std::map<std::tuple<Op, int, int64_t, std::vector<const void*>>, int64_t> stretches_;
  absl::Span<const Action> reductions_;  // of the action in progress
};

}  // namespace weft
