#include "plan/schedule/step_part.h"

#include "plan/errors.h"

namespace weft {

absl::string_view StepPartName(StepPart part) {
  switch (part) {
    case StepPart::kForward:
      return "forward";
    case StepPart::kBackward:
      return "backward";
    case StepPart::kTransfers:
      return "transfers";
    case StepPart::kReductions:
      return "reductions";
    case StepPart::kUpdate:
      return "update";
  }
  CHECK(false);
  return "";
}

StepPart PartOf(Op op) {
  if (op == Op::kForward) return StepPart::kForward;
  if (IsPass(op)) return StepPart::kBackward;
  if (IsTransfer(op)) return StepPart::kTransfers;
  return op == Op::kUpdate ? StepPart::kUpdate : StepPart::kReductions;
}

}  // namespace weft
