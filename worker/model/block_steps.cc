#include "worker/model/block_steps.h"

#include <cstddef>

#include "plan/errors.h"

namespace weft {
namespace {

// Steps of one operation.
StepKind KindOf(OpKind kind) {
  switch (kind) {
    case OpKind::kNorm:
      return StepKind::kNorm;
    case OpKind::kHeadNorm:
      return StepKind::kHeadNorm;
    case OpKind::kLinear:
      return StepKind::kProducts;
    case OpKind::kGelu:
    case OpKind::kSwiGlu:
      return StepKind::kActivation;
    case OpKind::kRotate:
      return StepKind::kTurn;
    case OpKind::kAttention:
      return StepKind::kAttention;
    case OpKind::kJoinHeads:
    case OpKind::kScale:
    case OpKind::kAdd:  // only after a product, as a branch
    case OpKind::kSquaredRelu:
    case OpKind::kRoute:
    case OpKind::kDispatch:
    case OpKind::kCombine:
    case OpKind::kScaleRows:
      break;
  }
  CHECK(false);
  return StepKind::kNorm;
}

// Whether `next` goes on with the step that `op` is the last operation of.
bool AreTogether(const BlockOp& op, const BlockOp& next) {
  switch (next.kind) {
    case OpKind::kLinear:
      return op.kind == OpKind::kLinear && op.in == next.in;
    case OpKind::kGelu:
    case OpKind::kScale:
      return op.kind == OpKind::kLinear && op.out.front() == next.in.back();
    case OpKind::kAdd:
      return (op.kind == OpKind::kLinear || op.kind == OpKind::kScale) &&
             op.out.front() == next.in.back();
    case OpKind::kRotate:
      return op.kind == OpKind::kRotate;
    default:
      return false;
  }
}

}  // namespace

std::vector<BlockStep> StepsOf(const BlockOps& block) {
  std::vector<BlockStep> steps;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const BlockOp& op = block.ops[i];
    if (op.kind == OpKind::kRotate && !op.turns) continue;
    const bool goes_on = i > 0 && AreTogether(block.ops[i - 1], op);
    if (!goes_on) steps.push_back({KindOf(op.kind), {}});
    steps.back().ops.push_back(static_cast<int>(i));
    if (goes_on && op.kind == OpKind::kAdd) steps.back().kind = StepKind::kBranch;
    if (goes_on && op.kind == OpKind::kGelu) steps.back().kind = StepKind::kProductThenGelu;
  }
  return steps;
}

}  // namespace weft
