#include "plan/stage_memory.h"

#include <algorithm>

#include "absl/types/span.h"
#include "plan/buckets.h"

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
                   .recompute = layout.recompute_of(stage),
                   .head_chunks = stage == layout.pp - 1 ? layout.head_chunks : 1,
                   .sequence_parallel = layout.sequence_ranks() > 1};
  auto found = parts_.find(key);
  if (found == parts_.end()) found = parts_.emplace(key, Measure(key)).first;
  const Parts& parts = found->second;
  const ActivationSlots slots = ActivationSlotsOf(layout, model_.num_blocks, stage);
  MemoryBytes bytes = StatesOf(parts, layout, StageBlockCount(layout, model_.num_blocks, stage)) +
                      parts.fixed + slots.slots * (parts.slot + slots.blocks * parts.slot_block) +
                      slots.heads * parts.head;
  for (const int64_t elements : parts.token_elements) {
    const BufferSpec buffer = {MemoryKind::kTokens, "", elements * layout.num_microbatches};
    bytes.by_kind[static_cast<size_t>(MemoryKind::kTokens)] += buffer.aligned_bytes();
  }
  return bytes;
}

StageMemoryTable::Parts StageMemoryTable::Measure(const Key& key) const {
  const Sample sample = SampleOf(key);
  const ActivationSlots single = {.slots = 1, .blocks = 1, .heads = 1};
  const MemoryBytes one = BytesOf(sample, single);
  Parts parts;
  parts.slot_block = BytesOf(sample, {.slots = 1, .blocks = 2, .heads = 1}) - one;
  parts.slot = BytesOf(sample, {.slots = 2, .blocks = 1, .heads = 1}) - one - parts.slot_block;
  parts.head = BytesOf(sample, {.slots = 1, .blocks = 1, .heads = 2}) - one;
  parts.fixed = one - parts.slot - parts.slot_block - parts.head;
  const auto& [model, layout, batch, rank] = sample;
  for (const BufferSpec& buffer :
       PlanRankMemory(model, batch, layout, rank, numerics_, single).buffers) {
    if (buffer.kind == MemoryKind::kTokens) parts.token_elements.push_back(buffer.elements);
  }
  for (const Bucket& bucket : BucketsOf(model, layout, rank, numerics_.optimizer)) {
    if (bucket.shards.front().tensor.part == ModelPart::kBlock) {
      parts.block_elements = bucket.elements;
    } else {
      parts.end_elements.push_back(bucket.elements);
    }
  }
  return parts;
}

StageMemoryTable::Sample StageMemoryTable::SampleOf(const Key& key) const {
  Sample sample;
  sample.model = model_;
  sample.model.num_blocks = key.stages;
  Layout& layout = sample.layout;
  layout.dp = key.dp;
  layout.pp = key.stages;
  layout.tp = key.tp;
  layout.schedule = key.schedule;
  // Blocks are few here: the second chunk of a stage has none.
  layout.virtual_stages = key.schedule == ScheduleKind::kInterleaved ? 2 : 1;
  layout.micro_batch_size = key.micro_batch_size;
  layout.recompute = key.recompute;
  layout.head_chunks = key.head_chunks;
  layout.sequence_parallel = key.sequence_parallel;
  sample.batch = {key.dp * key.micro_batch_size, seq_len_};
  sample.rank = layout.grid().RankOf({.dp = 0, .pp = key.stage, .cp = 0, .tp = 0});
  return sample;
}

MemoryBytes StageMemoryTable::BytesOf(const Sample& sample, const ActivationSlots& slots) const {
  const auto& [model, layout, batch, rank] = sample;
  MemoryBytes bytes = BytesByKind(PlanRankMemory(model, batch, layout, rank, numerics_, slots));
  for (const MemoryKind kind :
       {MemoryKind::kWeights, MemoryKind::kGradients, MemoryKind::kMasterWeights,
        MemoryKind::kOptimizer, MemoryKind::kTokens}) {
    bytes.by_kind[static_cast<size_t>(kind)] = 0;
  }
  return bytes;
}

MemoryBytes StageMemoryTable::StatesOf(const Parts& parts, const Layout& layout,
                                       int64_t blocks) const {
  MemoryBytes bytes;
  const auto add = [&](absl::Span<const StateBuffer> buffers, int64_t times) {
    for (const auto& [kind, prefix, elements, type] : buffers) {
      const BufferSpec buffer = {kind, "", elements, type};
      bytes.by_kind[static_cast<size_t>(kind)] += times * buffer.aligned_bytes();
    }
  };
  int64_t largest = parts.block_elements;
  add(StateBuffersOf(parts.block_elements, layout, numerics_), blocks);
  for (const int64_t elements : parts.end_elements) {
    add(StateBuffersOf(elements, layout, numerics_), 1);
    largest = std::max(largest, elements);
  }
  add(WholeBuffersOf(largest, layout, numerics_), 1);
  return bytes;
}

}  // namespace weft
