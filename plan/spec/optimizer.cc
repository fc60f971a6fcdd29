#include "plan/spec/optimizer.h"

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {

OptimizerStates StatesOf(OptimizerKind kind) {
  switch (kind) {
    case OptimizerKind::kAdamw:
      return OptimizerStates::kTwoMoments;
    case OptimizerKind::kSgd:
      return OptimizerStates::kNone;
    case OptimizerKind::kAdamw8bit:
      return OptimizerStates::kTwoMoments8Bit;
    case OptimizerKind::kLion:
      return OptimizerStates::kOneMoment;
    case OptimizerKind::kAdafactor:
      return OptimizerStates::kFactored;
  }
  return OptimizerStates::kTwoMoments;
}

absl::Span<const StateArray> StateArrays(OptimizerStates states) {
  static constexpr StateArray kMomentum[] = {{"momentum"}};
  static constexpr StateArray kMoments[] = {{"exp_avg"}, {"exp_avg_sq"}};
  static constexpr StateArray kQuantised[] = {{"exp_avg", StateForm::kSignedCodes},
                                              {"exp_avg_scales", StateForm::kScales},
                                              {"exp_avg_sq", StateForm::kUnsignedCodes},
                                              {"exp_avg_sq_scales", StateForm::kScales}};
  switch (states) {
    case OptimizerStates::kNone:
    case OptimizerStates::kFactored:
      return {};
    case OptimizerStates::kMomentum:
      return kMomentum;
    case OptimizerStates::kOneMoment:
      return absl::MakeConstSpan(kMoments).first(1);
    case OptimizerStates::kTwoMoments:
      return kMoments;
    case OptimizerStates::kTwoMoments8Bit:
      return kQuantised;
  }
  CHECK(false);
  return {};
}

Words WordsOf(OptimizerKind) {
  static constexpr absl::string_view kWords[] = {"adamw", "sgd", "adamw_8bit", "lion", "adafactor"};
  return kWords;
}

absl::string_view OptimizerName(OptimizerKind kind) {
  return WordOf(kind);
}

absl::StatusOr<OptimizerKind> ParseOptimizer(absl::string_view name) {
  return ParseWord<OptimizerKind>(name, "an optimizer that weft knows");
}

}  // namespace weft
