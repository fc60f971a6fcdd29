#include "plan/spec/optimizer.h"

#include <array>
#include <cstddef>
#include <iterator>

#include "plan/errors.h"

namespace weft {
namespace {

struct OptimizerRow {
  absl::string_view name;
  OptimizerStates states = OptimizerStates::kNone;
};

// In the order of OptimizerKind.
constexpr OptimizerRow kOptimizers[] = {
    {"adamw", OptimizerStates::kTwoMoments},          {"sgd", OptimizerStates::kNone},
    {"adamw_8bit", OptimizerStates::kTwoMoments8Bit}, {"lion", OptimizerStates::kOneMoment},
    {"adafactor", OptimizerStates::kFactored},        {"adagrad", OptimizerStates::kSquareSum},
};

}  // namespace

OptimizerStates StatesOf(OptimizerKind kind) {
  return kOptimizers[static_cast<size_t>(kind)].states;
}

absl::Span<const StateArray> StateArrays(OptimizerStates states) {
  static constexpr StateArray kMomentum[] = {{"momentum"}};
  static constexpr StateArray kSquareSum[] = {{"sum"}};
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
    case OptimizerStates::kSquareSum:
      return kSquareSum;
    case OptimizerStates::kTwoMoments:
      return kMoments;
    case OptimizerStates::kTwoMoments8Bit:
      return kQuantised;
  }
  CHECK(false);
  return {};
}

Words WordsOf(OptimizerKind) {
  static constexpr auto kWords = [] {
    std::array<absl::string_view, std::size(kOptimizers)> words;
    for (size_t i = 0; i < words.size(); ++i) words[i] = kOptimizers[i].name;
    return words;
  }();
  return kWords;
}

}  // namespace weft
