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
    case OpKind::kWideNorm:
      return StepKind::kWideNorm;
    case OpKind::kLinear:
      return StepKind::kProducts;
    case OpKind::kGelu:
    case OpKind::kSquaredRelu:
    case OpKind::kErfGelu:
    case OpKind::kSwiGlu:
    case OpKind::kGeGlu:
      return StepKind::kActivation;
    case OpKind::kRotate:
      return StepKind::kTurn;
    case OpKind::kAttention:
      return StepKind::kAttention;
    case OpKind::kJoinHeads:
    case OpKind::kScale:
    case OpKind::kAdd:  // only after a product or a norm, as a branch
    case OpKind::kRoute:
    case OpKind::kDispatch:
    case OpKind::kCombine:
    case OpKind::kScaleRows:
      break;
  }
  CHECK(false);
  return StepKind::kNorm;
}

// Whether the products are terms of one sum.
bool AreTerms(const BlockOps& block, const BlockOp& op, const BlockOp& next) {
  const auto place = [&](const BlockOp& of) {
    return block.values[static_cast<size_t>(of.out.front())].place;
  };
  return place(op) != kOwnPlace && place(op) == place(next);
}

// Whether `next` goes on with the step that `op` is the last operation of.
bool AreTogether(const BlockOps& block, const BlockOp& op, const BlockOp& next) {
  switch (next.kind) {
    case OpKind::kLinear:
      return op.kind == OpKind::kLinear && (op.in == next.in || AreTerms(block, op, next));
    case OpKind::kGelu:
    case OpKind::kScale:
      return op.kind == OpKind::kLinear && op.out.front() == next.in.back();
    case OpKind::kAdd:
      return (op.kind == OpKind::kLinear || op.kind == OpKind::kScale ||
              op.kind == OpKind::kNorm) &&
             op.out.front() == next.in.back();
    case OpKind::kRotate:
      return op.kind == OpKind::kRotate;
    default:
      return false;
  }
}

// Whether tp cuts the product's inputs, and nothing is added before its terms are summed.
bool IsSummed(const BlockOps& block, const BlockOp& op) {
  const BlockParam& weight = block.params[static_cast<size_t>(op.params.front())];
  const BlockValue& out = block.values[static_cast<size_t>(op.out.front())];
  return weight.in.cut == DimCut::kTensor && out.rows == Rows::kPart;
}

}  // namespace

std::vector<BlockStep> StepsOf(const BlockOps& block) {
  std::vector<BlockStep> steps;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const BlockOp& op = block.ops[i];
    if (op.kind == OpKind::kRotate && !op.turns) continue;
    const bool goes_on = i > 0 && AreTogether(block, block.ops[i - 1], op);
    if (!goes_on) steps.push_back({KindOf(op.kind), {}});
    steps.back().ops.push_back(static_cast<int>(i));
    if (op.kind == OpKind::kLinear && IsSummed(block, op)) {
      steps.back().kind = StepKind::kSummedProduct;
    }
    if (goes_on && op.kind == OpKind::kAdd) {
      const bool is_normed = steps.back().kind == StepKind::kNorm;
      steps.back().kind = is_normed ? StepKind::kNormBranch : StepKind::kBranch;
    }
    if (goes_on && op.kind == OpKind::kGelu) steps.back().kind = StepKind::kProductThenGelu;
  }
  return steps;
}

}  // namespace weft
