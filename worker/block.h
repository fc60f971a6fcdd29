// Block: one pre-norm transformer block of GPT-2 (Radford et al., 2019), cut over tp as Shoeybi et
// al., arXiv:1909.08053, section 3: q, k, v and up by outputs, o and down by inputs. The two sums
// over tp of the forward pass follow o and down; the two of the backward pass precede the norms.
//
// Everything outside the cut (x, norms, residuals) is the same on each tp rank, bit for bit.
#pragma once
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "plan/model.h"
#include "worker/arena.h"
#include "worker/backend/device.h"
#include "worker/groups.h"
#include "worker/parameters.h"

namespace weft {

// Saved by a forward pass for its backward pass. N = B*T rows; H, F: this rank's part.
struct BlockActivations {
  View x;                       // [N, D]
  View norm1_mean, norm1_rstd;  // [N, 1]
  View norm1_out;               // [N, D]
  View q, k, v, attn;           // [N, H*E]
  View lse;                     // [B*H, T]
  View x_mid;                   // [N, D]
  View norm2_mean, norm2_rstd;  // [N, 1]
  View norm2_out;               // [N, D]
  View up, act;                 // [N, F]
};

// Dies within one action; shared by all blocks of a stage.
struct BlockWorkspace {
  View dnorm;              // [N, D]
  View dact;               // [N, F]
  View dattn, dq, dk, dv;  // [N, H*E]
  View scores;             // scratch of attention
};

class Block {
 public:
  // Borrows `device` and `groups`.
  Block(const ModelShape& model, int64_t block, const AttentionShape& attention,
        const Parameters& parameters, Device& device, RankGroups& groups);

  // Buffers "<prefix>/x" and so on, and "work/...".
  BlockActivations GetActivations(const std::string& prefix, Arena& arena) const;
  BlockWorkspace GetWorkspace(Arena& arena) const;

  // Reads saved.x [N, D], fills the rest of `saved`, writes the block's output to `out` [N, D].
  absl::Status Forward(const BlockActivations& saved, const BlockWorkspace& work, View out);

  // `dx` [N, D] holds the gradient of the output and becomes that of the input. Accumulates the
  // gradients of the block's parameters.
  absl::Status Backward(const BlockActivations& saved, const BlockWorkspace& work, View dx);

 private:
  absl::Status BackwardMlp(const BlockActivations& saved, const BlockWorkspace& work, View dx);
  absl::Status BackwardAttention(const BlockActivations& saved, const BlockWorkspace& work,
                                 View dx);

  Device& device_;
  RankGroups& groups_;
  AttentionShape attention_;
  double norm_eps_ = 0;
  Norm norm1_, norm2_;
  Linear q_, k_, v_, o_, up_, down_;
};

}  // namespace weft
