// The buffers of a model's blocks by name, for each way in which their linear layers are fused
// (plan/shards/fused_linears): lists are made once for a question, not for each of the thousands of
// layouts that a search asks about. Used by one thread.
#pragma once
#include <array>
#include <cstddef>
#include <optional>
#include <vector>

#include "plan/block/block_buffers.h"
#include "plan/block/block_ops.h"
#include "plan/shards/fused_linears.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {

struct BlockMemory {
  BlockOps ops;
  std::array<SavedBuffers, 3> saved;  // by Recompute
  std::vector<BlockBuffer> gradients;

  const SavedBuffers& SavedUnder(Recompute recompute) const {
    return saved[static_cast<size_t>(recompute)];
  }
};

class BlockMemoryTable {
 public:
  // All blocks are of the kind of the first. REQUIRES: CheckModel holds.
  explicit BlockMemoryTable(const ModelShape& model)
      : model_(model), joints_(JointsOf(OpsOf(model, 0))) {}

  const FusedLinears& joints() const { return joints_; }  // of a block

  // Valid as long as the table.
  const BlockMemory& Of(const FusedLinears& fused);

 private:
  ModelShape model_;
  FusedLinears joints_;
  std::array<std::optional<BlockMemory>, 4> entries_;
};

}  // namespace weft
