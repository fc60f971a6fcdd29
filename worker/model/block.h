// Block: one pre-norm transformer block of GPT-2 (Radford et al., 2019) or Llama (Touvron et al.,
// arXiv:2302.13971), cut over tp as Shoeybi et al., arXiv:1909.08053, section 3: q, k, v, gate and
// up by outputs, o and down by inputs. The two sums over tp of the forward pass follow o and down;
// the two of the backward pass precede the norms, and move beside weight gradients where these are
// not another action's.
//
// What the families differ in shows in the parameters: a norm without bias is RMSNorm, an mlp with
// a gate is SwiGLU instead of GELU. Llama alone has rotary positions: q and k are kept turned.
//
// Everything outside the cut (x, norms, residuals) is the same on each tp rank, bit for bit; or,
// under sequence parallelism, each rank has R of its N rows (worker/model/token_cut.h).
//
// Where the stage recomputes, blocks keep a part of their activations only
// (plan/block/block_buffers). The rest lies in buffers that others use too, and the backward pass first
// makes it again: by the same operations in the same order, so that it does not change a bit of any
// gradient. But for one rounding: a device that fuses may give the forward pass GELU of what is not
// rounded yet, and selective recompute has only what is (`up`).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plan/shards/fused_linears.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "worker/backend/device.h"
#include "worker/model/token_cut.h"
#include "worker/state/arena.h"
#include "worker/state/parameters.h"

namespace weft {

// Outputs of q, k and v, or the gradients of these. Where the three are one layer
// (plan/shards/fused_linears.h) they are columns of `all` [N, (H + 2K)*E], which else is null.
struct QkvViews {
  View all = {};
  View q = {};          // [N, H*E]
  View k = {}, v = {};  // [N, K*E]
};

// The same of gate and up; `all` [N, 2F].
struct GateUpViews {
  View all = {};
  View gate = {}, up = {};  // [N, F]
};

// A forward pass saves these for its backward pass. N = B*T / cp rows, R of them on this rank; H,
// K, F: this rank's part. Views that the family does not have are null.
struct BlockActivations {
  View x;                // [R, D]
  NormStatistics norm1;  // [R, 1]
  View norm1_out;        // [R, D]
  QkvViews qkv;
  View attn;             // [N, H*E]
  View lse;              // [B*H, T / cp]
  View x_mid;            // [R, D]
  NormStatistics norm2;  // [R, 1]
  View norm2_out;        // [R, D]
  GateUpViews mlp;
  View act;  // [N, F]

  // Each view that is null here is that of `rest`.
  BlockActivations With(const BlockActivations& rest) const;
};

// Shared by all blocks of a stage. All but `rotary` and `first_visible` die within one action.
struct BlockWorkspace {
  View dnorm;        // [N, D]
  GateUpViews dmlp;  // that of `act` becomes that of `up` in its place
  View dattn;        // [N, H*E]
  QkvViews dqkv;
  View scores;  // scratch of attention
  View rotary;  // [T / cp, E], a table
  // Under context parallelism, [B*T, K*E] of whole sequences; while the one pair is in use the
  // other holds its rows by rank (worker/model/context.h).
  View keys, values, dkeys, dvalues;
  // [N, 1] of the microbatch at hand: the first position that each token sees; no data: 0.
  View first_visible;
  int64_t documents = 0;  // of that microbatch: AttentionShape's
};

class Block {
 public:
  // Borrows `fp8` (null: all products are in the type of the weights), `tokens`, `device` and
  // `groups`. `codes`: in which codes of weights are kept for a step; null: they are not.
  Block(const ModelShape& model, int64_t block, const AttentionShape& attention,
        const Parameters& parameters, const FusedLinears& fused, Recompute recompute,
        Fp8Linear* fp8, Fp8Codes* codes, TokenCut& tokens, Device& device, RankGroups& groups);

  int bucket() const { return bucket_; }  // of its parameters

  // Buffers "<prefix>/x" and so on: of what a block keeps, or of what it makes again. The other
  // views are null.
  enum class Share { kKept, kMadeAgain };
  BlockActivations GetActivations(Share share, const std::string& prefix, Arena& arena) const;
  // Buffers "work/...", with the table filled.
  BlockWorkspace GetWorkspace(Arena& arena) const;

  // Device::PrepareAttention of this block's calls, which is the same for all of a stage.
  // `documents`: AttentionShape's.
  const char* PrepareAttention(const BlockWorkspace& work, bool masks_documents,
                               int64_t documents) const;

  // Codes that are kept of weights do not follow these until they are renewed: the first call after
  // OutdateCodes makes them anew, others do nothing.
  void OutdateCodes() { are_codes_old_ = true; }
  void RenewCodes();

  // Reads saved.x [R, D], fills the rest of `saved`, writes the block's output to `out` [R, D].
  absl::Status Forward(const BlockActivations& saved, const BlockWorkspace& work, View out);

  // `dx` [R, D] holds the gradient of the output and becomes that of the input. Accumulates the
  // gradients of the block's parameters.
  absl::Status Backward(const BlockActivations& saved, const BlockWorkspace& work, View dx);

  // Backward in two: BackwardInput leaves out the gradients of the linear layers' parameters, and
  // BackwardWeight accumulates these, given `dy` [R, D], the gradient of the block's output. What
  // the second half needs from the first takes the place of activations of no further use: the
  // gradients of q, k, v, gate and up their own, that of attention's output x_mid's. What was made
  // again stays for the second half too.
  absl::Status BackwardInput(const BlockActivations& saved, const BlockWorkspace& work, View dx);
  absl::Status BackwardWeight(const BlockActivations& saved, View dy);

 private:
  enum class Part { kWhole, kInput };
  struct KeyValues {
    View k, v;  // [B*T, K*E]
  };

  void UseFp8(Fp8Linear& fp8, Fp8Codes* codes);
  AttentionShape AttentionOf(int64_t documents) const;
  // Layers with their outputs, or the gradients of these; as one where they are fused.
  std::vector<LinearOutput> WithLayers(const QkvViews& views) const;
  std::vector<LinearOutput> WithLayers(const GateUpViews& views) const;
  // q and k, in place; nothing without rotary positions.
  void Rotate(const BlockWorkspace& work, Turn turn, const QkvViews& views);

  // All of `saved` from saved.x.
  absl::Status FillActivations(const BlockActivations& saved, const BlockWorkspace& work);
  // The part of it that is not kept.
  absl::Status MakeAgain(const BlockActivations& saved, const BlockWorkspace& work);
  // `out` [R, D] = residual [R, D] + linear(x), which is cut by inputs and so a sum over tp.
  absl::Status AddBranch(const Linear& linear, View x, View residual, View out);
  // Returns the keys and values of whole sequences: all that this rank's queries attend to.
  absl::StatusOr<KeyValues> GatherKeys(const BlockActivations& saved, const BlockWorkspace& work);
  absl::Status BackwardMlp(const BlockActivations& saved, const BlockWorkspace& work, View dx,
                           Part part);
  absl::Status BackwardAttention(const BlockActivations& saved, const BlockWorkspace& work, View dx,
                                 Part part);
  // Through a layer that is cut by inputs to its input, and to its parameters unless that is
  // BackwardWeight's.
  void BackwardThrough(const LinearOutput& gradient, View x, View dx, Part part);
  // The same through layers that are cut by outputs, to the norm whose output [R, D] they share.
  // Returns the gradient of that, a sum over tp in `dnorm` [N, D], which moves beside the products
  // of the parameters' gradients; what these take is gathered beside the products before.
  absl::StatusOr<View> BackwardToNorm(absl::Span<const LinearOutput> gradients, View norm_out,
                                      View dnorm, Part part);

  Device& device_;
  RankGroups& groups_;
  TokenCut& tokens_;
  const Recompute recompute_;
  AttentionShape attention_;
  ModelShape model_;
  int bucket_ = 0;
  Norm norm1_, norm2_;
  Linear q_, k_, v_, o_, up_, down_;
  std::optional<Linear> gate_;           // SwiGLU
  std::optional<Linear> qkv_, gate_up_;  // where they are fused
  Fp8Linear* fp8_ = nullptr;
  std::vector<Fp8Weight> kept_;  // of which codes are kept
  bool are_codes_old_ = false;
};

}  // namespace weft
