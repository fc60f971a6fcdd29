// BlockFacts are what closed forms say of one block on one rank, of those with experts and of dense
// ones apart: a search asks for the memory of many stages, and most of them differ in how many
// blocks they have, how these are cut over ranks, or when, not in what a block is. Pure values; the
// table is used by one thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "plan/estimate/activation_bytes.h"
#include "plan/estimate/question.h"
#include "plan/estimate/state_bytes.h"
#include "plan/spec/layout.h"
#include "plan/spec/layout_key.h"

namespace weft {

struct BlockFacts {
  // REQUIRES: as ClosedFormStageMemory.
  BlockFacts(const Question& question, const Layout& layout);

  BlockKinds parameters;
  std::array<BlockFootprint, 3> saved, dense_saved;  // by Recompute; the latter if there are such
};

// The facts of layouts of one question, each found out when first asked for.
class BlockFactsTable {
 public:
  BlockFactsTable() = default;
  BlockFactsTable(const BlockFactsTable&) = delete;  // it points into itself
  BlockFactsTable& operator=(const BlockFactsTable&) = delete;

  // `question`: the same each time. Valid until the next call.
  const BlockFacts& Of(const Question& question, const Layout& layout);

 private:
  static constexpr size_t kMostEntries = 1 << 14;
  // A block depends on tp, cp, ep, etp, micro_batch_size and sequence_parallel.
  using Key =
      LayoutKey<&Layout::dp, &Layout::pp, &Layout::zero_stage, &Layout::zero_hpz_partition_size,
                &Layout::pp_schedule, &Layout::virtual_stages, &Layout::gradient_accumulation_steps,
                &Layout::recompute, &Layout::offload_optimizer, &Layout::head_chunk_tokens>;
  struct Hash {
    size_t operator()(const Key& key) const { return key.Hash(0); }
  };

  std::unordered_map<Key, BlockFacts, Hash> entries_;
  const Key* last_key_ = nullptr;  // neighbours ask for the same
  const BlockFacts* last_facts_ = nullptr;
};

}  // namespace weft
