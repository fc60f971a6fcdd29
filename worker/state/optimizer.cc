#include "worker/state/optimizer.h"

#include <iterator>
#include <vector>

#include "plan/errors.h"

namespace weft {
namespace {

static_assert(kStateBlock == kQuantisationBlock);

double DecayOf(const OptimizerSpec& optimizer, const OwnPiece& piece) {
  return WeightDecayOf(piece.shard.tensor, optimizer.param_groups, optimizer.weight_decay);
}

// All pieces in one call, weights with them.
void UpdateByAdamw(const OptimizerSpec& optimizer, const AdamwParameters& adamw,
                   absl::Span<const OwnPiece> own, Device& device) {
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
  device.Adamw(adamw, segments.data(), std::ssize(segments));
}

void UpdateByQuantisedAdamw(const AdamwParameters& adamw, double weight_decay,
                            const OwnPiece& piece, Device& device) {
  const std::vector<OptimizerState>& states = piece.states;
  CHECK(states.size() == 4);
  device.QuantisedAdamw(adamw, weight_decay, piece.gradient, piece.master,
                        {states[0].values, states[1].values}, {states[2].values, states[3].values});
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
  const AdamwParameters adamw = {.lr = lr,
                                 .beta1 = optimizer.beta1,
                                 .beta2 = optimizer.beta2,
                                 .eps = optimizer.eps,
                                 .gradient_scale = gradient_scale,
                                 .step = step};
  if (optimizer.name == OptimizerKind::kAdamw) {
    return UpdateByAdamw(optimizer, adamw, own, device);
  }
  for (const OwnPiece& piece : own) {
    const double decay = DecayOf(optimizer, piece);
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
      UpdateByQuantisedAdamw(adamw, decay, piece, device);
    }
    RoundWeight(piece, device);
  }
}

}  // namespace weft
