// Block: one transformer block, computed as its list of operations says (plan/block/block_ops), cut
// over tp as Shoeybi et al., arXiv:1909.08053, section 3: what makes queries, keys, values and the
// feed-forward's inner columns by outputs, what leads back to the residuals by inputs. The sums
// over tp of the forward pass follow the latter; those of the backward pass precede the norms, and
// move beside weight gradients where these are not another action's.
//
// Everything outside the cut (x, norms, residuals) is the same on each tp rank, bit for bit; or,
// under sequence parallelism, each rank has R of its N rows (worker/model/token_cut.h).
//
// Where the stage recomputes, blocks keep a part of their activations only (SavedBuffersOf in
// plan/block/block_buffers). The rest lies in buffers that others use too, and the backward pass
// first makes it again: by the same operations in the same order, so that it does not change a bit
// of any gradient. But for one rounding: a device that fuses may give the forward pass GELU of what
// is not rounded yet, and selective recompute has only what is (`up`).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/block/block_buffers.h"
#include "plan/block/block_ops.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "worker/backend/device.h"
#include "worker/model/forward_step.h"
#include "worker/model/token_cut.h"
#include "worker/state/arena.h"
#include "worker/state/parameters.h"

namespace weft {

// A forward pass saves these for its backward pass: a view for each of BlockOps::values, without
// data where the value lies nowhere or in another set. The first is the block's input [R, D].
struct BlockActivations {
  std::vector<View> views;

  View x() const { return views.front(); }
  // Each view that is null here is that of `rest`.
  BlockActivations With(const BlockActivations& rest) const;
};

// Shared by all blocks of a stage. All but `rotary` and what tokens see die within one action.
struct BlockWorkspace {
  // The gradient of each of BlockOps::values, without data for residuals. That of an activation's
  // output is that of its last input, in whose place it becomes the latter.
  std::vector<View> gradients;
  View dnorm;                // [N, D] the gradient of a norm's output
  View scores;               // scratch of attention
  View norm_sums;            // [N, 1] of a norm that tp cuts
  std::vector<View> rotary;  // [T / cp, W], tables, by ModelShape::rotations
  // Under context parallelism, [B*T, K*E] of whole sequences; while the one pair is in use the
  // other holds its rows by rank (worker/model/context.h).
  View keys, values, dkeys, dvalues;
  // [N, 1] of the microbatch at hand: the first position that each token sees; no data: 0.
  View first_visible;
  View first_in_window;   // the same within the model's window; no data: it hides nothing
  int64_t documents = 0;  // of that microbatch: AttentionShape's
};

class Block {
 public:
  // Borrows `ops`, `fp8` (null: all products are in the type of the weights), `tokens`, `device`
  // and `groups`. `codes`: in which codes of weights are kept for a step; null: they are not.
  // `attention` says all but the strides.
  Block(const ModelShape& model, const BlockOps& ops, int64_t block,
        const AttentionShape& attention, const Parameters& parameters, Recompute recompute,
        Fp8Linear* fp8, Fp8Codes* codes, TokenCut& tokens, Device& device, RankGroups& groups);

  int bucket() const { return bucket_; }  // of its parameters

  // Buffers "<prefix>/x" and so on: of what a block keeps, or of what it makes again. The other
  // views are null.
  enum class Share { kKept, kMadeAgain };
  BlockActivations GetActivations(Share share, const std::string& prefix, Arena& arena) const;
  // Buffers "work/...", with the table filled.
  BlockWorkspace GetWorkspace(Arena& arena) const;

  // Whether its attention goes by work.first_in_window.
  bool Slides(const BlockWorkspace& work) const;
  // Device::PrepareAttention of this block's calls, which is the same for all of a stage that slide
  // and for all that do not. `documents`: AttentionShape's, of the latter.
  const char* PrepareAttention(const BlockWorkspace& work, bool masks_documents,
                               int64_t documents) const;

  // Codes that are kept of weights do not follow these until they are renewed: the first call after
  // OutdateCodes makes them anew, others do nothing.
  void OutdateCodes() { are_codes_old_ = true; }
  void RenewCodes();

  // Reads saved.x() [R, D], fills the rest of `saved`, writes the block's output to `out` [R, D].
  absl::Status Forward(const BlockActivations& saved, const BlockWorkspace& work, View out);

  // `dx` [R, D] holds the gradient of the output and becomes that of the input. Accumulates the
  // gradients of the block's parameters.
  absl::Status Backward(const BlockActivations& saved, const BlockWorkspace& work, View dx);

  // Backward in two: BackwardInput leaves out the gradients of the linear layers' parameters, and
  // BackwardWeight accumulates these, given `dy` [R, D], the gradient of the block's output. What
  // the second half needs from the first, the gradients of the layers' outputs, takes the place of
  // the outputs, which are of no further use. What was made again stays for the second half too.
  absl::Status BackwardInput(const BlockActivations& saved, const BlockWorkspace& work, View dx);
  // Whether BackwardWeight reads `dy`. Only a block that norms its input, whose products so do not
  // read it, has branches that end in a product.
  bool WeightsReadOutputGradient() const { return steps_.back().kind == StepKind::kBranch; }
  absl::Status BackwardWeight(const BlockActivations& saved, View dy);

 private:
  enum class Part { kWhole, kInput };
  struct KeyValues {
    View k, v;  // [B*T, K*E]
  };
  using Step = ForwardStep;
  // A step of a backward pass hands this on to the step before it.
  struct Arriving {
    View dnorm;                 // [R, D] the gradient of a norm's output, summed over tp
    bool is_gelu_done = false;  // a product's backward pass was through GELU, too
  };

  void UseFp8(Fp8Linear& fp8, Fp8Codes* codes);
  bool IsInFp8(const BlockOp& linear, const Fp8Layers& layers) const;
  void SetStrides();

  int64_t RowsOf(Rows rows) const;
  View GetBuffer(const BlockBuffer& buffer, const std::string& name, Arena& arena) const;
  // The value's part of a buffer in which it, or its gradient, lies.
  View ColumnsOf(int value, View buffer) const;

  AttentionShape AttentionOf(int64_t documents) const;
  AttentionShape AttentionOf(const BlockWorkspace& work) const;
  View FirstVisible(const BlockWorkspace& work) const;

  // Carries out a step of a forward pass; `out` is the block's.
  absl::Status Do(const Step& step, const BlockActivations& saved, const BlockWorkspace& work,
                  View out);
  // Carries out all steps but the last, which makes the block's output.
  absl::Status FillActivations(const BlockActivations& saved, const BlockWorkspace& work);
  // Makes the part of the activations again that is not kept.
  absl::Status MakeAgain(const BlockActivations& saved, const BlockWorkspace& work);
  // `out` [R, D] = residual [R, D] + factor linear(x), which is cut by inputs and so a sum over tp;
  // or the sum of several.
  absl::Status AddBranch(const Step& branch, const BlockActivations& saved, View out);
  // `out` [R, D] = linear(x), likewise.
  absl::Status SumProduct(const Step& product, const BlockActivations& saved, View out);
  // tp cuts what the norm is of.
  absl::Status ForwardWideNorm(const Step& step, const BlockActivations& saved);
  absl::Status BackwardWideNorm(const Step& step, const BlockActivations& saved,
                                const BlockWorkspace& work);
  // Returns the keys and values of whole sequences: all that this rank's queries attend to.
  absl::StatusOr<KeyValues> GatherKeys(const BlockOp& attention, const BlockActivations& saved,
                                       const BlockWorkspace& work);
  View LogSums(const BlockOp& attention, const BlockActivations& saved) const;  // [B*H, T / cp]

  absl::Status BackwardSteps(const BlockActivations& saved, const BlockWorkspace& work, View dx,
                             Part part);
  // Carries out the backward pass of a step.
  absl::Status Undo(size_t index, const BlockActivations& saved, const BlockWorkspace& work,
                    View dx, Part part, Arriving& arriving);
  // Back through products of one input. Adds to `dx` where that is the residual itself.
  absl::Status BackwardProducts(const Step& step, const BlockActivations& saved,
                                const BlockWorkspace& work, View dx, Part part, Arriving& arriving);
  // `dx` [R, D]: the gradient of what the product, or the branch that it begins, gives.
  absl::Status BackwardSummed(size_t index, const BlockActivations& saved,
                              const BlockWorkspace& work, View dx, Part part, Arriving& arriving);
  void BackwardNormBranch(const Step& step, const BlockActivations& saved,
                          const BlockWorkspace& work, View dx);
  absl::Status BackwardAttention(const Step& step, const BlockActivations& saved,
                                 const BlockWorkspace& work);
  void BackwardActivation(const BlockOp& op, const BlockActivations& saved,
                          const BlockWorkspace& work);
  void BackwardHeadNorm(const Step& step, const BlockActivations& saved,
                        const BlockWorkspace& work);
  // Through layers that are cut by outputs, to the norm whose output [R, D] they share, and to
  // their parameters unless these are BackwardWeight's. Returns the gradient of that, a sum over tp
  // in `dnorm` [N, D], which moves beside the products of the parameters' gradients; what these
  // take is gathered beside the products before.
  absl::StatusOr<View> BackwardToNorm(absl::Span<const LinearOutput> gradients, View norm_out,
                                      View dnorm, Part part);

  const BlockOps& ops_;
  Device& device_;
  RankGroups& groups_;
  TokenCut& tokens_;
  const Recompute recompute_;
  AttentionShape attention_;
  ModelShape model_;
  int bucket_ = 0;
  std::vector<Step> steps_;
  bool has_window_ = false;
  Fp8Linear* fp8_ = nullptr;
  std::vector<Fp8Weight> kept_;  // of which codes are kept
  bool are_codes_old_ = false;
};

}  // namespace weft
