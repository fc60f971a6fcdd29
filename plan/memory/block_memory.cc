#include "plan/memory/block_memory.h"

namespace weft {

const BlockMemory& BlockMemoryTable::Of(const FusedLinears& fused) {
  const size_t index = (fused.qkv ? 2 : 0) + (fused.gate_up ? 1 : 0);
  std::optional<BlockMemory>& entry = entries_[index];
  if (entry) return *entry;
  entry.emplace();
  entry->ops = FusedOpsOf(model_, 0, fused);
  for (const Recompute mode : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
    entry->saved[static_cast<size_t>(mode)] = SavedBuffersOf(entry->ops, mode);
  }
  entry->gradients = GradientBuffersOf(entry->ops);
  return *entry;
}

}  // namespace weft
