#include "plan/schedule/step_part.h"

#include "plan/errors.h"

namespace weft {

Words WordsOf(StepPart) {
  static constexpr absl::string_view kWords[] = {"forward", "backward", "transfers", "reductions",
                                                 "update"};
  return kWords;
}

StepPart PartOf(Op op) {
  if (op == Op::kForward) return StepPart::kForward;
  if (IsPass(op)) return StepPart::kBackward;
  if (IsTransfer(op)) return StepPart::kTransfers;
  return op == Op::kUpdate ? StepPart::kUpdate : StepPart::kReductions;
}

}  // namespace weft
