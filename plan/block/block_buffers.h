// The buffers of a block's training, from its list of operations (plan/block/block_ops): what a
// forward pass keeps for the backward pass, what that makes again, and the gradients of values.
// A buffer is needed if the gradient of an operation reads it (RuleOf); the recompute mode decides
// whether it is kept. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/block/block_ops.h"
#include "plan/spec/layout.h"

namespace weft {

struct BlockBuffer {
  absl::string_view name;  // BlockValue::name; of a gradient, that of its value, or "norm"
  Rows rows = Rows::kTokens;
  int value = 0;  // whose columns it has
  bool is_statistic = false;
  // All values whose gradients lie in it, at some time; empty for what is no gradient.
  std::vector<int> gradients_of = {};
};

// A backward pass reads these: kept from the forward pass on, or made again by it.
struct SavedBuffers {
  std::vector<BlockBuffer> kept, made_again;
};
SavedBuffers SavedBuffersOf(const BlockOps& block, Recompute recompute);

// Returns the gradients that have memory of their own, in the order in which a backward pass makes
// them. That of the block's output, which becomes its input's, is the caller's. Gradients of norms'
// outputs follow each other: all that are never there together share one buffer, "norm".
std::vector<BlockBuffer> GradientBuffersOf(const BlockOps& block);

// Columns of `value` on the tp rank `tp_index`.
int64_t LocalColumns(const BlockOps& block, int value, const Layout& layout, int tp_index);

// The first of them in the value whose memory they lie in (BlockOps::PlaceOf).
int64_t FirstColumn(const BlockOps& block, int value, const Layout& layout, int tp_index);

}  // namespace weft
