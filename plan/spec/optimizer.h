// This table says which optimizers there are, and what each keeps of a parameter beside its weight
// and gradient: memory, time, checkpoints and the worker agree on it. Pure values.
#pragma once
#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/spec/words.h"

namespace weft {

// kAdamw8bit: both moments in 8 bits (Dettmers et al., arXiv:2110.02861). kLion: one moment
// (arXiv:2302.06675). kAdafactor: moments of rows and columns (plan/shards/factored_moments.h).
// kAdagrad: a sum of squares (Duchi et al., JMLR 12, 2011).
enum class OptimizerKind { kAdamw, kSgd, kAdamw8bit, kLion, kAdafactor, kAdagrad };

// The optimizer keeps these states per trained parameter beside the weight. kMomentum: SGD's sum of
// gradients. kOneMoment: their average. kSquareSum: the sum of their squares.
enum class OptimizerStates {
  kNone,
  kMomentum,
  kOneMoment,
  kSquareSum,
  kTwoMoments,
  kTwoMoments8Bit,
  kFactored,
};
OptimizerStates StatesOf(OptimizerKind kind);  // sgd: without momentum

// Elements of a block of 8-bit state, of one tensor as a rank holds it, whatever ZeRO cuts.
inline constexpr int64_t kStateBlock = 256;

// kSignedCodes, kUnsignedCodes: 8 bits per parameter; the array of scales, one per block, is next.
enum class StateForm { kFp32, kSignedCodes, kUnsignedCodes, kScales };

// One of the arrays of optimizer state that the engine keeps beside an array of parameters. A
// checkpoint names it "optimizer.<name>.<tensor>", in fp32; codes and scales are one tensor there.
struct StateArray {
  absl::string_view name;
  StateForm form = StateForm::kFp32;

  bool is_codes() const {
    return form == StateForm::kSignedCodes || form == StateForm::kUnsignedCodes;
  }
  int64_t parameters_per_element() const { return form == StateForm::kScales ? kStateBlock : 1; }
  int64_t ElementsFor(int64_t parameters) const {
    return (parameters + parameters_per_element() - 1) / parameters_per_element();
  }
};

// Returns the arrays in order. kFactored has none: its state is of whole tensors
// (plan/shards/factored_moments.h).
absl::Span<const StateArray> StateArrays(OptimizerStates states);

Words WordsOf(OptimizerKind);

}  // namespace weft
