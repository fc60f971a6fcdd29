#include "worker/optimizer.h"

#include "plan/errors.h"

namespace weft {
namespace {

static_assert(kStateBlock == kQuantisationBlock);

void UpdateByAdamw(const AdamwParameters& adamw, const OwnPiece& piece, Device& device) {
  const std::vector<OptimizerState>& states = piece.states;
  if (states.front().array.is_codes()) {
    CHECK(states.size() == 4);
    device.QuantisedAdamw(adamw, piece.gradient, piece.master, {states[0].values, states[1].values},
                          {states[2].values, states[3].values});
    return;
  }
  CHECK(states.size() == 2);
  device.Adamw(adamw, piece.gradient, piece.master, states[0].values, states[1].values);
}

}  // namespace

void AddPrimaryGradientSquares(absl::Span<const OwnPiece> own, View total, Device& device) {
  for (const OwnPiece& piece : own) {
    if (piece.shard.primary) device.AddSumOfSquares(piece.gradient, total);
  }
}

void UpdateParameters(const OptimizerSpec& optimizer, double lr, View gradient_scale, int64_t step,
                      absl::Span<const OwnPiece> own, Device& device) {
  for (const OwnPiece& piece : own) {
    const double decay =
        WeightDecayOf(piece.shard.tensor, optimizer.param_groups, optimizer.weight_decay);
    if (optimizer.states() == OptimizerStates::kMomentum) {
      device.SgdMomentum({.lr = lr,
                          .momentum = optimizer.momentum,
                          .dampening = optimizer.dampening,
                          .nesterov = optimizer.nesterov,
                          .weight_decay = decay,
                          .gradient_scale = gradient_scale,
                          .first = step == 1},
                         piece.gradient, piece.master, piece.states.front().values);
    } else if (optimizer.name == OptimizerKind::kSgd) {
      device.Sgd(lr, decay, gradient_scale, piece.gradient, piece.master);
    } else if (optimizer.name == OptimizerKind::kLion) {
      device.Lion({.lr = lr,
                   .beta1 = optimizer.beta1,
                   .beta2 = optimizer.beta2,
                   .weight_decay = decay,
                   .gradient_scale = gradient_scale},
                  piece.gradient, piece.master, piece.states.front().values);
    } else {
      const AdamwParameters adamw = {.lr = lr,
                                     .beta1 = optimizer.beta1,
                                     .beta2 = optimizer.beta2,
                                     .eps = optimizer.eps,
                                     .weight_decay = decay,
                                     .gradient_scale = gradient_scale,
                                     .step = step};
      UpdateByAdamw(adamw, piece, device);
    }
    RoundWeight(piece, device);
  }
}

}  // namespace weft
