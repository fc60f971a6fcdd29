// Which optimizers there are, and what each keeps of a parameter beside its weight and gradient:
// what memory, time, checkpoints and the worker agree on. Pure values.
#pragma once
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// kAdamw8bit: both moments in 8 bits (Dettmers et al., arXiv:2110.02861). kLion: one moment
// (arXiv:2302.06675). kAdafactor: moments of rows and columns (arXiv:1804.04235).
enum class OptimizerKind { kAdamw, kSgd, kAdamw8bit, kLion, kAdafactor };

// What the optimizer keeps per trained parameter beside the weight. kMomentum: SGD's sum of
// gradients. kOneMoment: their average.
enum class OptimizerStates {
  kNone,
  kMomentum,
  kOneMoment,
  kTwoMoments,
  kTwoMoments8Bit,
  kFactored,
};
OptimizerStates StatesOf(OptimizerKind kind);  // sgd: without momentum

// The buffers of optimizer state that the engine keeps of each parameter, in order; a checkpoint
// names them "optimizer.<name>.<tensor>". REQUIRES: moments are kept whole.
absl::Span<const absl::string_view> StateNames(OptimizerStates states);

absl::string_view OptimizerName(OptimizerKind kind);  // "adamw", "sgd", "adamw_8bit", ...
absl::StatusOr<OptimizerKind> ParseOptimizer(absl::string_view name);

}  // namespace weft
