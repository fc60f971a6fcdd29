// The buffers of a block, from its list of operations (plan/block/block_ops). Of training: what a
// forward pass keeps for the backward pass, what that makes again, and the gradients of values; of
// inference: what a pass needs while it lasts. A buffer is kept or made again if the gradient of an
// operation reads it (RuleOf); the recompute mode decides which. Pure.
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

// Buffers of a forward pass that no backward pass follows. A value's buffer is another's as soon as
// nobody reads the value any more.
struct PassBuffers {
  // A statistic's columns are BlockBuffer::value's, as everywhere. The first is the block's input.
  std::vector<BlockBuffer> buffers;
  // Index of the buffer of each of BlockOps::values; kInCache: of keys and values that attention
  // reads, which stay for the tokens to come.
  static constexpr int kInCache = -1;
  std::vector<int> of_value;
};
// REQUIRES: the engine runs the block's operations (EngineIssues).
PassBuffers PassBuffersOf(const BlockOps& block);

// Columns of `value` on the tp rank `tp_index`.
int64_t LocalColumns(const BlockOps& block, int value, const Layout& layout, int tp_index);

// The first of them in the value whose memory they lie in (BlockOps::PlaceOf).
int64_t FirstColumn(const BlockOps& block, int value, const Layout& layout, int tp_index);

}  // namespace weft
