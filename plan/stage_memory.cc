#include "plan/stage_memory.h"

#include <algorithm>

namespace weft {
namespace {

MemoryBytes operator+(const MemoryBytes& a, const MemoryBytes& b) {
  MemoryBytes sum;
  for (size_t i = 0; i < kMemoryKinds; ++i) sum.by_kind[i] = a.by_kind[i] + b.by_kind[i];
  return sum;
}

MemoryBytes operator*(int64_t factor, const MemoryBytes& bytes) {
  MemoryBytes product;
  for (size_t i = 0; i < kMemoryKinds; ++i) product.by_kind[i] = factor * bytes.by_kind[i];
  return product;
}

MemoryBytes operator-(const MemoryBytes& a, const MemoryBytes& b) {
  return a + (-1) * b;
}

// ActivationSlots without walking the schedule.
int64_t SlotsOf(const Layout& layout, int stage) {
  if (layout.schedule == ScheduleKind::kGpipe) return layout.num_microbatches;
  return std::min<int64_t>(layout.pp - stage, layout.num_microbatches);
}

}  // namespace

int64_t MemoryBytes::total_bytes() const {
  int64_t sum = 0;
  for (const int64_t bytes : by_kind) sum += bytes;
  return sum;
}

MemoryKind MemoryBytes::largest() const {
  return static_cast<MemoryKind>(std::max_element(by_kind.begin(), by_kind.end()) -
                                 by_kind.begin());
}

MemoryBytes BytesByKind(const RankMemory& memory) {
  MemoryBytes bytes;
  for (const BufferSpec& buffer : memory.buffers) {
    bytes.by_kind[static_cast<size_t>(buffer.kind)] += buffer.aligned_bytes();
  }
  return bytes;
}

StageMemoryTable::StageMemoryTable(const ModelShape& model, int64_t seq_len, int optimizer_states)
    : model_(model), seq_len_(seq_len), optimizer_states_(optimizer_states) {}

MemoryBytes StageMemoryTable::Of(const Layout& layout, int stage) {
  const int stages = std::min(layout.pp, 3);
  const int last = stages - 1;
  const Key key = {.stages = stages,
                   .stage = stage == layout.pp - 1 ? last : std::min(stage, 1),
                   .tp = layout.tp,
                   .dp = std::min(layout.dp, 2),
                   .micro_batch_size = layout.micro_batch_size};
  auto found = parts_.find(key);
  if (found == parts_.end()) found = parts_.emplace(key, Measure(key)).first;
  const Parts& parts = found->second;
  const int64_t blocks = StageBlockCount(layout, model_.num_blocks, stage);
  const int64_t slots = SlotsOf(layout, stage);
  MemoryBytes bytes =
      parts.fixed + blocks * parts.block + slots * parts.slot + blocks * slots * parts.block_slot;
  for (const int64_t elements : parts.token_elements) {
    const BufferSpec buffer = {MemoryKind::kTokens, "", elements * layout.num_microbatches};
    bytes.by_kind[static_cast<size_t>(MemoryKind::kTokens)] += buffer.aligned_bytes();
  }
  return bytes;
}

StageMemoryTable::Parts StageMemoryTable::Measure(const Key& key) const {
  const MemoryBytes one = BytesOf(key, 1, 1);
  const MemoryBytes two_slots = BytesOf(key, 1, 2);
  const MemoryBytes two_blocks = BytesOf(key, 2, 1);
  Parts parts;
  parts.block_slot = BytesOf(key, 2, 2) - two_slots - two_blocks + one;
  parts.block = two_blocks - one - parts.block_slot;
  parts.slot = two_slots - one - parts.block_slot;
  parts.fixed = one - parts.block - parts.slot - parts.block_slot;
  for (const BufferSpec& buffer : List(key, 1, 1).buffers) {
    if (buffer.kind == MemoryKind::kTokens) parts.token_elements.push_back(buffer.elements);
  }
  return parts;
}

MemoryBytes StageMemoryTable::BytesOf(const Key& key, int blocks, int slots) const {
  MemoryBytes bytes = BytesByKind(List(key, blocks, slots));
  bytes.by_kind[static_cast<size_t>(MemoryKind::kTokens)] = 0;
  return bytes;
}

RankMemory StageMemoryTable::List(const Key& key, int blocks, int slots) const {
  ModelShape model = model_;
  model.num_blocks = int64_t{blocks} * key.stages;
  Layout layout;
  layout.dp = key.dp;
  layout.pp = key.stages;
  layout.tp = key.tp;
  layout.schedule = ScheduleKind::kGpipe;  // holds every microbatch: as many slots
  layout.micro_batch_size = key.micro_batch_size;
  layout.num_microbatches = slots;
  const BatchShape batch = {key.dp * key.micro_batch_size * slots, seq_len_};
  const int rank = layout.grid().RankOf({.dp = 0, .pp = key.stage, .cp = 0, .tp = 0});
  return PlanRankMemory(model, batch, layout, rank, optimizer_states_);
}

}  // namespace weft
