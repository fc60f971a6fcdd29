// Bytes per kind that a pipeline stage holds, without listing its buffers: what the search needs
// for thousands of layouts. Summed from the very lists that PlanRankMemory is made of, on models of
// one block a stage, so there is still one memory model. The layout that wins is listed
// in full. Pure values; StageMemoryTable keeps answers and is used by one thread.
#pragma once
#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>
#include <vector>

#include "plan/memory/memory.h"
#include "plan/spec/layout.h"
#include "plan/spec/layout_key.h"
#include "plan/spec/model.h"

namespace weft {

inline constexpr size_t kMemoryKinds = static_cast<size_t>(MemoryKind::kTokens) + 1;

struct MemoryBytes {
  std::array<int64_t, kMemoryKinds> by_kind = {};  // on the device
  int64_t host_bytes = 0;                          // beside them

  int64_t bytes(MemoryKind kind) const { return by_kind[static_cast<size_t>(kind)]; }
  int64_t total_bytes() const;  // on the device
  MemoryKind largest() const;   // ties: the earlier kind
  friend bool operator==(const MemoryBytes&, const MemoryBytes&) = default;
};

MemoryBytes BytesByKind(const RankMemory& memory);

class StageMemoryTable {
 public:
  // REQUIRES: CheckModel holds.
  // Of `batch` the sequences per step do not matter.
  StageMemoryTable(const ModelShape& model, const BatchShape& batch, const Numerics& numerics);

  // Returns the bytes of the stage's largest rank (tp index 0 takes the remainders, cp index 0 sees
  // all keys): equal to PlanRankMemory.
  // REQUIRES: CheckLayout holds; 0 <= stage < layout.pp.
  MemoryBytes Of(const Layout& layout, int stage);

 private:
  // The stage's kind, as far as memory depends on it: first, inner, last or only stage; cut.
  struct Key {
    Key(const Layout& layout, int stage);
    // The key has of dp whether there is a data group, and GPipe for 1F1B, which differs in slots
    // alone; recompute, pieces of the head and sequence_parallel as far as this stage has them.
    LayoutKey<&Layout::pp, &Layout::ep, &Layout::zero_stage, &Layout::zero_hpz_partition_size,
              &Layout::virtual_stages, &Layout::gradient_accumulation_steps,
              &Layout::offload_optimizer>
        properties;
    int stages;              // min(pp, 3): all inner stages are alike
    int stage;               // 0 first, stages - 1 last
    bool keeps_fp8_weights;  // of zero_stage, all that this memory depends on
    friend bool operator==(const Key&, const Key&) = default;
  };
  // The stage's largest rank holds a share of the model. Only the key's stage and tp decide which.
  struct ShareKey {
    int stages = 1;
    int stage = 0;
    int tp = 1;

    friend auto operator<=>(const ShareKey&, const ShareKey&) = default;
  };
  struct Share {
    LocalDims dims;
    int64_t block_elements = 0;                   // of a block's bucket
    std::vector<int64_t> end_elements;            // of the buckets of embedding and head
    FactoredTotals block_factored, end_factored;  // of a block; of both ends
  };
  // bytes = fixed + slot * slots + pending * (pending_block * blocks + pending_pass) + head * heads
  // + block * blocks, and tokens, and the model states of all buckets, which depend on how ZeRO
  // cuts them.
  struct Parts {
    MemoryBytes fixed, slot, pending_block, pending_pass, head, block;
    std::vector<int64_t> token_elements;  // of each token buffer, per microbatch
    const Share* share = nullptr;         // in shares_
  };
  // The model states of a share depend on these.
  struct StatesKey {
    const Share* share = nullptr;
    int64_t blocks = 0;
    int zero_stage = 0;
    int zero_ranks = 1;
    bool has_data_group = false;
    OffloadDevice offload_optimizer = OffloadDevice::kNone;

    friend bool operator==(const StatesKey&, const StatesKey&) = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const;
    size_t operator()(const StatesKey& key) const;
  };

  // The smallest model and layout with a stage of that kind, one block per stage, no ZeRO.
  struct Sample {
    ModelShape model;
    Layout layout;
    BatchShape batch;
    int rank = 0;
  };
  Sample SampleOf(const Key& key) const;
  const Share& ShareOf(const Key& key, const Sample& sample);
  Parts Measure(const Key& key);
  const Parts& PartsOf(const Key& key);
  const MemoryBytes& StatesOf(const Share& share, const Layout& layout, int64_t blocks);
  MemoryBytes MeasureStates(const Share& share, const Layout& layout, int64_t blocks) const;

  ModelShape model_;
  BatchShape batch_;
  Numerics numerics_;
  BlockMemoryTable blocks_;
  std::unordered_map<Key, Parts, Hash> parts_;
  // Neighbours ask for the same, of the stages of a layout in turns.
  struct Last {
    const Key* key = nullptr;
    const Parts* parts = nullptr;
  };
  std::array<Last, 4> last_;          // by Key::stage
  std::map<ShareKey, Share> shares_;  // others point at what it holds
  std::unordered_map<StatesKey, MemoryBytes, Hash> states_;
};

}  // namespace weft
