#include "plan/spec/optimizer.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "plan/errors.h"

namespace weft {
namespace {

struct OptimizerRow {
  OptimizerKind kind = OptimizerKind::kAdamw;
  absl::string_view name;
  OptimizerStates states = OptimizerStates::kNone;
};

// In the order of OptimizerKind.
constexpr OptimizerRow kOptimizers[] = {
    {OptimizerKind::kAdamw, "adamw", OptimizerStates::kTwoMoments},
    {OptimizerKind::kSgd, "sgd", OptimizerStates::kNone},
    {OptimizerKind::kAdamw8bit, "adamw_8bit", OptimizerStates::kTwoMoments8Bit},
    {OptimizerKind::kLion, "lion", OptimizerStates::kOneMoment},
    {OptimizerKind::kAdafactor, "adafactor", OptimizerStates::kFactored},
};

const OptimizerRow& RowOf(OptimizerKind kind) {
  const OptimizerRow* const row =
      std::find_if(std::begin(kOptimizers), std::end(kOptimizers),
                   [&](const OptimizerRow& each) { return each.kind == kind; });
  CHECK(row != std::end(kOptimizers));
  return *row;
}

}  // namespace

OptimizerStates StatesOf(OptimizerKind kind) {
  return RowOf(kind).states;
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

absl::string_view OptimizerName(OptimizerKind kind) {
  return RowOf(kind).name;
}

std::string OptimizerNames() {
  std::string names;
  for (const OptimizerRow& row : kOptimizers) {
    const bool is_first = &row == std::begin(kOptimizers);
    const bool is_last = &row == std::prev(std::end(kOptimizers));
    absl::StrAppend(&names, is_first ? "" : is_last ? " or " : ", ", row.name);
  }
  return names;
}

absl::StatusOr<OptimizerKind> ParseOptimizer(absl::string_view name) {
  for (const OptimizerRow& row : kOptimizers) {
    if (name == row.name) return row.kind;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("\"", name, "\" is not an optimizer that weft knows; use ", OptimizerNames()));
}

}  // namespace weft
