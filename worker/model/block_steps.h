// The steps in which the worker computes a block: operations of its list (plan/block/block_ops)
// that a device or a communicator does together. Pure.
#pragma once
#include <vector>

#include "plan/block/block_ops.h"

namespace weft {

enum class StepKind {
  kNorm,             // {norm}
  kHeadNorm,         // {norm}
  kWideNorm,         // {norm}
  kProducts,         // {linear, ...}: of one input, which is gathered once for all of them
  kProductThenGelu,  // {linear, gelu}
  kActivation,       // {activation}
  kTurn,             // {rotate, ...}
  kAttention,        // {attention}
  kSummedProduct,    // {linear}: a product cut by inputs and its sum over tp
  kNormBranch,       // {norm, add}: what is normed before it is added to the residual
  kBranch,           // {linear, add}, {linear, scale, add}, {linear, linear, add}: products cut by
                     // inputs, their one sum over tp, a factor, the residual
};

struct BlockStep {
  StepKind kind = StepKind::kNorm;
  std::vector<int> ops;  // indices
};

// All of a block's operations, each once, in their order. REQUIRES: the engine runs all of them
// (EngineIssues).
std::vector<BlockStep> StepsOf(const BlockOps& block);

}  // namespace weft
