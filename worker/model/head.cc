#include "worker/model/head.h"

#include "plan/errors.h"
#include "plan/memory/memory.h"
#include "plan/spec/layout.h"

namespace weft {

Head::Head(const ModelShape& model, const Parameters& parameters, int64_t rows, View dnorm,
           TokenCut& tokens, Arena& arena, Device& device, RankGroups& groups)
    : device_(device),
      tokens_(tokens),
      groups_(groups),
      pieces_(groups.layout().head_chunks(rows / groups.layout().micro_batch_size *
                                          groups.layout().cp)),
      terms_({.cap = model.logit_cap, .vocabulary = model.vocab_size}),
      logit_factor_(model.logit_scale / model.logits_scaling),
      dnorm_(dnorm) {
  const Parameter& table =
      parameters.Get(model.tied_embeddings ? kTokenEmbeddingName : "head.weight");
  first_id_ = table.shard.begin[0];
  bucket_ = table.bucket;
  norm_ = parameters.GetNorm("final_norm");
  weight_ = table.weight;
  weight_gradient_ = table.gradient;
  const int64_t part_rows = tokens.part_rows();
  x_ = arena.Get("work/head/x", part_rows, model.hidden_size);
  if (model.has_layer_norms()) {
    norm_saved_.mean = arena.Get("work/head/norm_mean", part_rows, 1);
  }
  norm_saved_.rstd = arena.Get("work/head/norm_rstd", part_rows, 1);
  norm_out_ = arena.Get("work/head/norm_out", part_rows, model.hidden_size);
  logits_ =
      arena.Get("work/head/logits", EvenSplit(rows, pieces_, 0).size(), LogitStride(weight_.rows))
          .ColRange(0, weight_.rows);
  row_max_ = arena.Get("work/head/row_max", rows, 1);
  row_sum_ = arena.Get("work/head/row_sum", rows, 1);
  target_logit_ = arena.Get("work/head/target_logit", rows, 1);
}

Head::Piece Head::PieceOf(View norm_out, View targets, int piece) const {
  const BlockRange rows = EvenSplit(targets.rows, pieces_, piece);
  const auto of = [&](View whole) { return whole.RowRange(rows.begin, rows.size()); };
  return {.norm_out = of(norm_out),
          .dnorm = of(dnorm_),
          .targets = of(targets),
          .logits = logits_.RowRange(0, rows.size()),
          .row_max = of(row_max_),
          .row_sum = of(row_sum_),
          .target_logit = of(target_logit_)};
}

// Logits are scaled by scaling what they are made of.
void Head::MakeNorm() {
  ForwardNorm(norm_, x_, norm_out_, norm_saved_, device_);
  if (logit_factor_ != 1) device_.Scale(norm_out_, logit_factor_);
}

void Head::MakeLogits(const Piece& piece) {
  device_.MatMul(piece.norm_out, Transpose::kNo, weight_, Transpose::kYes, 0, piece.logits);
  if (terms_.cap > 0) device_.Cap(piece.logits, terms_.cap);
}

absl::Status Head::ForwardPiece(const Piece& piece, const LossTerms& loss) {
  MakeLogits(piece);
  device_.RowMax(piece.logits, piece.row_max);
  RETURN_IF_ERROR(groups_.MaxOverTensor(piece.row_max));
  device_.RowSumExp(piece.logits, piece.row_max, piece.targets, first_id_, loss, piece.row_sum,
                    piece.target_logit);
  RETURN_IF_ERROR(groups_.SumOverTensor(piece.row_sum));
  return groups_.SumOverTensor(piece.target_logit);
}

absl::Status Head::LogitGradient(const Piece& piece, double scale) {
  LossTerms loss = terms_;
  loss.scale = scale;
  if (groups_.layout().tp == 1) {
    MakeLogits(piece);
    device_.CrossEntropy(piece.targets, loss, piece.logits, piece.row_max, piece.row_sum,
                         piece.target_logit);
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ForwardPiece(piece, loss));
  device_.SoftmaxGradient(piece.row_max, piece.row_sum, piece.targets, first_id_, loss,
                          piece.logits);
  return absl::OkStatus();
}

void Head::BackwardInput(const Piece& piece) {
  device_.MatMul(piece.logits, Transpose::kNo, weight_, Transpose::kNo, 0, piece.dnorm);
}

void Head::BackwardWeight(const Piece& piece) {
  device_.MatMul(piece.logits, Transpose::kYes, piece.norm_out, Transpose::kNo, 1,
                 weight_gradient_);
}

// The sum over all rows comes last, in the order of rows: the pieces do not change its bits.
absl::Status Head::Loss(View targets, View loss_sum) {
  MakeNorm();
  ASSIGN_OR_RETURN(const View norm_out, tokens_.Gather(norm_out_));
  for (int piece = 0; piece < pieces_; ++piece) {
    RETURN_IF_ERROR(ForwardPiece(PieceOf(norm_out, targets, piece), {}));
  }
  device_.AddLossSum(row_max_, row_sum_, target_logit_, {}, loss_sum);
  return absl::OkStatus();
}

absl::Status Head::LossAndGradient(View targets, double scale, View dx, View loss_sum) {
  MakeNorm();
  ASSIGN_OR_RETURN(const View norm_out, tokens_.Gather(norm_out_));
  for (int piece = 0; piece < pieces_; ++piece) {
    const Piece rows = PieceOf(norm_out, targets, piece);
    RETURN_IF_ERROR(LogitGradient(rows, scale));
    BackwardInput(rows);
    if (piece + 1 == pieces_) RETURN_IF_ERROR(tokens_.StartSumOwn(dnorm_));
    BackwardWeight(rows);
  }
  ASSIGN_OR_RETURN(const View dnorm, tokens_.EndSumOwn(dnorm_));
  if (logit_factor_ != 1) device_.Scale(dnorm, logit_factor_);
  device_.Zero(dx);
  BackwardNorm(norm_, dnorm, x_, norm_saved_, dx, device_);
  device_.AddLossSum(row_max_, row_sum_, target_logit_, terms_, loss_sum);
  return absl::OkStatus();
}

}  // namespace weft
