#include "worker/state/optimizer.h"

#include <iterator>
#include <vector>

#include "plan/errors.h"
#include "worker/backend/updates.h"

namespace weft {
namespace {

static_assert(kStateBlock == kQuantisationBlock);

double DecayOf(const OptimizerSpec& optimizer, const OwnPiece& piece) {
  return WeightDecayOf(piece.shard.tensor, optimizer.param_groups, optimizer.weight_decay);
}

// All pieces in one call, weights with them.
void UpdateByAdamw(const OptimizerSpec& optimizer, const AdamwParameters& adamw,
                   absl::Span<const OwnPiece> own, Updates& updates) {
  std::vector<AdamwSegment> segments;
  segments.reserve(own.size());
  for (const OwnPiece& piece : own) {
    CHECK(piece.states.size() == 2);
    const bool has_weight = piece.weight.data != piece.master.data;
    segments.push_back({.gradient = piece.gradient,
                        .param = piece.master,
                        .exp_avg = piece.states[0].values,
                        .exp_avg_sq = piece.states[1].values,
                        .weight = has_weight ? piece.weight : View(),
                        .weight_decay = DecayOf(optimizer, piece)});
  }
  updates.Adamw(adamw, segments.data(), std::ssize(segments));
}

void UpdateByQuantisedAdamw(const AdamwParameters& adamw, double weight_decay,
                            const OwnPiece& piece, Updates& updates) {
  const std::vector<OptimizerState>& states = piece.states;
  CHECK(states.size() == 4);
  updates.QuantisedAdamw(adamw, weight_decay, piece.gradient, piece.master,
                         {states[0].values, states[1].values},
                         {states[2].values, states[3].values});
}

void UpdateBySgd(const OptimizerSpec& optimizer, const AdamwParameters& step, double weight_decay,
                 const OwnPiece& piece, Updates& updates) {
  if (optimizer.states() == OptimizerStates::kNone) {
    return updates.Sgd(step.lr, weight_decay, step.gradient_scale, piece.gradient, piece.master);
  }
  updates.SgdMomentum({.lr = step.lr,
                       .momentum = optimizer.momentum,
                       .dampening = optimizer.dampening,
                       .nesterov = optimizer.nesterov,
                       .weight_decay = weight_decay,
                       .gradient_scale = step.gradient_scale,
                       .first = step.step == 1},
                      piece.gradient, piece.master, piece.states.front().values);
}

}  // namespace

void AddPrimaryGradientSquares(absl::Span<const OwnPiece> own, View total, Device& device) {
  std::vector<View> gradients;
  gradients.reserve(own.size());
  for (const OwnPiece& piece : own) {
    if (piece.shard.primary) gradients.push_back(piece.gradient);
  }
  device.AddSumOfSquares(gradients.data(), std::ssize(gradients), total);
}

void UpdateParameters(const OptimizerSpec& optimizer, double lr, View gradient_scale, int64_t step,
                      absl::Span<const OwnPiece> own, Device& device) {
  Updates& updates = device.updates();
  const AdamwParameters adamw = {.lr = lr,
                                 .beta1 = optimizer.beta1,
                                 .beta2 = optimizer.beta2,
                                 .eps = optimizer.eps,
                                 .gradient_scale = gradient_scale,
                                 .step = step};
  if (optimizer.name == OptimizerKind::kAdamw) {
    return UpdateByAdamw(optimizer, adamw, own, updates);
  }
  for (const OwnPiece& piece : own) {
    const double decay = DecayOf(optimizer, piece);
    switch (optimizer.name) {
      case OptimizerKind::kSgd:
        UpdateBySgd(optimizer, adamw, decay, piece, updates);
        break;
      case OptimizerKind::kLion:
        updates.Lion({.lr = lr,
                      .beta1 = optimizer.beta1,
                      .beta2 = optimizer.beta2,
                      .weight_decay = decay,
                      .gradient_scale = gradient_scale},
                     piece.gradient, piece.master, piece.states.front().values);
        break;
      case OptimizerKind::kAdagrad:
        updates.Adagrad({.lr = lr,
                         .eps = optimizer.eps,
                         .weight_decay = decay,
                         .gradient_scale = gradient_scale},
                        piece.gradient, piece.master, piece.states.front().values);
        break;
      case OptimizerKind::kAdamw8bit:
        UpdateByQuantisedAdamw(adamw, decay, piece, updates);
        break;
      case OptimizerKind::kAdamw:
      case OptimizerKind::kAdafactor:  // worker/state/adafactor.h
        CHECK(false);
    }
    RoundWeight(piece, device);
  }
}

}  // namespace weft
