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

StageMemoryTable::StageMemoryTable(const ModelShape& model, int64_t seq_len,
                                   const Numerics& numerics)
    : model_(model), seq_len_(seq_len), numerics_(numerics) {}

MemoryBytes StageMemoryTable::Of(const Layout& layout, int stage) {
  const int stages = std::min(layout.pp, 3);
  const int last = stages - 1;
  const bool is_1f1b = layout.schedule == ScheduleKind::kOneForwardOneBackward;
  const Key key = {.stages = stages,
                   .stage = stage == layout.pp - 1 ? last : std::min(stage, 1),
                   .tp = layout.tp,
                   .dp = std::min(layout.dp, 2),
                   .micro_batch_size = layout.micro_batch_size,
                   .schedule = is_1f1b ? ScheduleKind::kGpipe : layout.schedule,
                   .recompute = layout.recompute_of(stage)};
  auto found = parts_.find(key);
  if (found == parts_.end()) found = parts_.emplace(key, Measure(key)).first;
  const Parts& parts = found->second;
  const int64_t blocks = StageBlockCount(layout, model_.num_blocks, stage);
  const ActivationSlots slots = ActivationSlotsOf(layout, model_.num_blocks, stage);
  MemoryBytes bytes = parts.fixed + blocks * parts.block +
                      slots.slots * (parts.slot + slots.blocks * parts.slot_block) +
                      slots.heads * parts.head;
  for (const int64_t elements : parts.token_elements) {
    const BufferSpec buffer = {MemoryKind::kTokens, "", elements * layout.num_microbatches};
    bytes.by_kind[static_cast<size_t>(MemoryKind::kTokens)] += buffer.aligned_bytes();
  }
  return bytes;
}

StageMemoryTable::Parts StageMemoryTable::Measure(const Key& key) const {
  const ActivationSlots single = {.slots = 1, .blocks = 1, .heads = 1};
  const MemoryBytes one = BytesOf(key, 1, single);
  Parts parts;
  parts.block = BytesOf(key, 2, single) - one;
  parts.slot_block = BytesOf(key, 1, {.slots = 1, .blocks = 2, .heads = 1}) - one;
  parts.slot = BytesOf(key, 1, {.slots = 2, .blocks = 1, .heads = 1}) - one - parts.slot_block;
  parts.head = BytesOf(key, 1, {.slots = 1, .blocks = 1, .heads = 2}) - one;
  parts.fixed = one - parts.block - parts.slot - parts.slot_block - parts.head;
  for (const BufferSpec& buffer : List(key, 1, single).buffers) {
    if (buffer.kind == MemoryKind::kTokens) parts.token_elements.push_back(buffer.elements);
  }
  return parts;
}

MemoryBytes StageMemoryTable::BytesOf(const Key& key, int blocks,
                                      const ActivationSlots& slots) const {
  MemoryBytes bytes = BytesByKind(List(key, blocks, slots));
  bytes.by_kind[static_cast<size_t>(MemoryKind::kTokens)] = 0;
  return bytes;
}

RankMemory StageMemoryTable::List(const Key& key, int blocks, const ActivationSlots& slots) const {
  ModelShape model = model_;
  model.num_blocks = int64_t{blocks} * key.stages;
  Layout layout;
  layout.dp = key.dp;
  layout.pp = key.stages;
  layout.tp = key.tp;
  layout.schedule = key.schedule;
  // Blocks are few here: the second chunk of a stage may have none.
  layout.virtual_stages = key.schedule == ScheduleKind::kInterleaved ? 2 : 1;
  layout.micro_batch_size = key.micro_batch_size;
  layout.recompute = key.recompute;
  const BatchShape batch = {key.dp * key.micro_batch_size, seq_len_};
  const int rank = layout.grid().RankOf({.dp = 0, .pp = key.stage, .cp = 0, .tp = 0});
  return PlanRankMemory(model, batch, layout, rank, numerics_, slots);
}

}  // namespace weft
