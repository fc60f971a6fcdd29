// Head: final norm, logits and cross-entropy, on the last stage. The vocabulary is cut over tp into
// contiguous ranges; the softmax is completed by a maximum and sums over tp, so logits are never
// gathered. A tied model multiplies by its copy of the token embedding.
//
// The logits of a microbatch are made in Layout::head_chunks pieces of its rows, one piece at a
// time: each becomes loss and gradients before the next one takes its place.
#pragma once
#include <cstdint>

#include "absl/status/status.h"
#include "plan/spec/model.h"
#include "worker/backend/device.h"
#include "worker/model/token_cut.h"
#include "worker/state/arena.h"
#include "worker/state/groups.h"
#include "worker/state/parameters.h"

namespace weft {

class Head {
 public:
  // Borrows `tokens`, `device` and `groups`. `rows`: N of a microbatch, R of them on this rank
  // outside of the product. `dnorm` [N, D] is workspace that may be the blocks'.
  // REQUIRES: this rank is on the last stage.
  Head(const ModelShape& model, const Parameters& parameters, int64_t rows, View dnorm,
       TokenCut& tokens, Arena& arena, Device& device, RankGroups& groups);

  int bucket() const { return bucket_; }  // of its parameters

  // Where the last block writes its output [R, D].
  View input() const { return x_; }

  // Sets what passes that make gradients count beside cross-entropy, as LossTerms have it; nothing
  // at first.
  void SetTerms(double z_weight, double smoothing) {
    terms_.z_weight = z_weight;
    terms_.smoothing = smoothing;
  }

  // Adds the cross-entropy over the N targets [N, 1], the same on each tp rank, to `loss_sum` [1,
  // 1].
  absl::Status Loss(View targets, View loss_sum);

  // Adds the loss with its terms, writes the gradient of the input to `dx` [R, D] and accumulates
  // those of the parameters. In them the loss counts with `scale`, 1 / tokens of the global batch.
  absl::Status LossAndGradient(View targets, double scale, View dx, View loss_sum);

 private:
  // The rows of one piece, P of them, of what is [N, ...] as a whole.
  struct Piece {
    View norm_out, dnorm;                 // [P, D]
    View targets;                         // [P, 1]
    View logits;                          // [P, V_local], then their gradient
    View row_max, row_sum, target_logit;  // [P, 1]
  };
  Piece PieceOf(View norm_out, View targets, int piece) const;
  void MakeNorm();
  void MakeLogits(const Piece& piece);
  // Leaves what the loss is made of; logits stay.
  absl::Status ForwardPiece(const Piece& piece, const LossTerms& loss);
  // The same, with the gradient in the place of logits.
  absl::Status LogitGradient(const Piece& piece, double scale);
  void BackwardInput(const Piece& piece);
  void BackwardWeight(const Piece& piece);

  Device& device_;
  TokenCut& tokens_;
  RankGroups& groups_;
  const int pieces_;
  LossTerms terms_;  // with a scale of 1
  const double logit_factor_;
  int64_t first_id_ = 0;
  int bucket_ = 0;
  Norm norm_;
  View weight_, weight_gradient_;          // [V_local, D]
  View x_, norm_out_;                      // [R, D]
  NormStatistics norm_saved_;              // [R, 1]
  View logits_;                            // [P, V_local] of the largest piece
  View row_max_, row_sum_, target_logit_;  // [N, 1]
  View dnorm_;                             // [N, D]
};

}  // namespace weft
