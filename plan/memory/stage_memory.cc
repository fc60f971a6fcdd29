#include "plan/memory/stage_memory.h"

#include <algorithm>
#include <initializer_list>

#include "absl/types/span.h"
#include "plan/shards/buckets.h"
#include "plan/spec/fp8.h"

namespace weft {
namespace {

MemoryBytes operator+(const MemoryBytes& a, const MemoryBytes& b) {
  MemoryBytes sum;
  for (size_t i = 0; i < kMemoryKinds; ++i) sum.by_kind[i] = a.by_kind[i] + b.by_kind[i];
  sum.host_bytes = a.host_bytes + b.host_bytes;
  return sum;
}

MemoryBytes operator*(int64_t factor, const MemoryBytes& bytes) {
  MemoryBytes product;
  for (size_t i = 0; i < kMemoryKinds; ++i) product.by_kind[i] = factor * bytes.by_kind[i];
  product.host_bytes = factor * bytes.host_bytes;
  return product;
}

void Add(MemoryKind kind, int64_t bytes, MemoryBytes& sum) {
  sum.by_kind[static_cast<size_t>(kind)] += bytes;
}
void Add(const StepBuffer& buffer, MemoryBytes& sum) {
  Add(buffer.kind, AlignedBytes(buffer.elements, buffer.type), sum);
}
// Small numbers, mixed by Fibonacci hashing.
size_t HashOf(std::initializer_list<int64_t> values) {
  uint64_t hash = 0;
  for (const int64_t value : values) {
    hash = (hash ^ static_cast<uint64_t>(value)) * 0x9E3779B97F4A7C15U;
    hash ^= hash >> 32;
  }
  return hash;
}

// BufferSpec or StateBuffer.
template <typename Buffer>
void AddAtHome(const Buffer& buffer, MemoryBytes& sum) {
  const int64_t bytes = AlignedBytes(buffer.elements, buffer.type);
  if (buffer.home == MemoryHome::kHost) {
    sum.host_bytes += bytes;
  } else {
    Add(buffer.kind, bytes, sum);
  }
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
  for (const BufferSpec& buffer : memory.buffers) AddAtHome(buffer, bytes);
  return bytes;
}

StageMemoryTable::StageMemoryTable(const ModelShape& model, const BatchShape& batch,
                                   const Numerics& numerics)
    : model_(model), batch_(batch), numerics_(numerics), blocks_(model) {}

StageMemoryTable::Key::Key(const Layout& layout, int of_stage)
    : properties(layout),
      stages(std::min(layout.pp, 3)),
      stage(of_stage == layout.pp - 1 ? stages - 1 : std::min(of_stage, 1)),
      keeps_fp8_weights(KeepsFp8Weights(layout)) {
  properties.Set<&Layout::dp>(std::min(layout.dp, 2));
  if (layout.pp_schedule == ScheduleKind::kOneForwardOneBackward) {
    properties.Set<&Layout::pp_schedule>(ScheduleKind::kGpipe);
  }
  properties.Set<&Layout::recompute>(layout.recompute_of(of_stage));
  properties.Set<&Layout::sequence_parallel>(layout.sequence_ranks() > 1);
  if (stage != stages - 1) properties.Set<&Layout::head_chunk_tokens>(0);
}

size_t StageMemoryTable::Hash::operator()(const Key& key) const {
  return key.properties.Hash((key.keeps_fp8_weights ? 16 : 0) + key.stages * 4 + key.stage);
}

size_t StageMemoryTable::Hash::operator()(const StatesKey& key) const {
  const int habits =
      key.zero_stage * 4 + (key.has_data_group ? 2 : 0) + static_cast<int>(key.offload_optimizer);
  return HashOf({static_cast<int64_t>(reinterpret_cast<uintptr_t>(key.share)), key.blocks, habits,
                 key.zero_ranks});
}

const StageMemoryTable::Parts& StageMemoryTable::PartsOf(const Key& key) {
  Last& last = last_[static_cast<size_t>(key.stage)];
  if (last.key != nullptr && *last.key == key) return *last.parts;
  auto found = parts_.find(key);
  if (found == parts_.end()) found = parts_.emplace(key, Measure(key)).first;
  last = {&found->first, &found->second};
  return found->second;
}

MemoryBytes StageMemoryTable::Of(const Layout& layout, int stage) {
  const Parts& parts = PartsOf(Key(layout, stage));
  const ActivationSlots slots = ActivationSlotsOf(layout, model_.num_blocks, stage);
  MemoryBytes bytes =
      StatesOf(*parts.share, layout, StageBlockCount(layout, model_.num_blocks, stage)) +
      parts.fixed + slots.slots * parts.slot + slots.heads * parts.head +
      slots.blocks * parts.block;
  if (slots.pending > 0) {
    bytes = bytes + slots.pending * (parts.pending_pass + slots.blocks * parts.pending_block);
  }
  for (const int64_t elements : parts.token_elements) {
    Add(MemoryKind::kTokens,
        AlignedBytes(elements * layout.gradient_accumulation_steps, ElementType::kInt32), bytes);
  }
  return bytes;
}

StageMemoryTable::Parts StageMemoryTable::Measure(const Key& key) {
  Sample sample = SampleOf(key);
  Parts parts;
  parts.share = &ShareOf(key, sample);
  if (!key.keeps_fp8_weights) sample.layout.zero_stage = 3;
  for (const StepBuffer& buffer :
       StepBuffersOf(sample.model, sample.batch, sample.layout, {.pp = key.stage}, numerics_,
                     parts.share->dims, blocks_)) {
    switch (buffer.scope) {
      case BufferScope::kTokens:
        parts.token_elements.push_back(buffer.elements);
        break;
      case BufferScope::kSlot:
        Add(buffer, parts.slot);
        break;
      case BufferScope::kPendingBlock:
        Add(buffer, parts.pending_block);
        break;
      case BufferScope::kPending:
        Add(buffer, parts.pending_pass);
        break;
      case BufferScope::kHead:
        Add(buffer, parts.head);
        break;
      case BufferScope::kBlock:
        Add(buffer, parts.block);
        break;
      case BufferScope::kRecomputed:
      case BufferScope::kWork:
      case BufferScope::kWorkGradient:
      case BufferScope::kWorkOfHead:
      case BufferScope::kComm:
        Add(buffer, parts.fixed);
        break;
    }
  }
  return parts;
}

const StageMemoryTable::Share& StageMemoryTable::ShareOf(const Key& key, const Sample& sample) {
  const auto [found, is_new] = shares_.try_emplace({key.stages, key.stage, sample.layout.tp});
  Share& share = found->second;
  if (!is_new) return share;
  const std::vector<Bucket> buckets =
      BucketsOf(sample.model, sample.layout, sample.rank, numerics_.optimizer);
  share.dims = LocalDimsOf(sample.model, buckets);
  for (const Bucket& bucket : buckets) {
    if (bucket.shards.front().tensor.part == ModelPart::kBlock) {
      share.block_elements = bucket.elements;
      share.block_factored = FactoredTotalsOf(bucket);
    } else {
      share.end_elements.push_back(bucket.elements);
      share.end_factored += FactoredTotalsOf(bucket);
    }
  }
  return share;
}

StageMemoryTable::Sample StageMemoryTable::SampleOf(const Key& key) const {
  Sample sample;
  sample.model = model_;
  sample.model.num_blocks = key.stages;
  Layout& layout = sample.layout;
  key.properties.To(layout);
  layout.pp = key.stages;
  // Blocks are few here: the second chunk of a stage has none.
  layout.virtual_stages = layout.pp_schedule == ScheduleKind::kInterleaved ? 2 : 1;
  sample.batch = batch_;
  sample.batch.global_batch_size = layout.dp * layout.micro_batch_size;
  sample.rank = layout.grid().RankOf({.dp = 0, .pp = key.stage, .cp = 0, .tp = 0});
  return sample;
}

const MemoryBytes& StageMemoryTable::StatesOf(const Share& share, const Layout& layout,
                                              int64_t blocks) {
  const StatesKey key = {.share = &share,
                         .blocks = blocks,
                         .zero_stage = layout.zero_stage,
                         .zero_ranks = layout.zero_ranks(),
                         .has_data_group = layout.data_group() > 1,
                         .offload_optimizer = layout.offload_optimizer};
  const auto [found, is_new] = states_.try_emplace(key);
  if (is_new) found->second = MeasureStates(share, layout, blocks);
  return found->second;
}

MemoryBytes StageMemoryTable::MeasureStates(const Share& share, const Layout& layout,
                                            int64_t blocks) const {
  MemoryBytes bytes;
  const auto add = [&](const StateBuffers& buffers, int64_t times) {
    MemoryBytes sum;
    for (const StateBuffer& buffer : buffers) AddAtHome(buffer, sum);
    bytes = bytes + times * sum;
  };
  const BucketCounts counts = {.ends = std::ssize(share.end_elements), .blocks = blocks};
  BucketElements whole = {.block = share.block_elements, .counts = counts};
  const auto states_of = [&](int64_t elements, WholePlace place) {
    return StateBuffersOf(elements, ShardingAt(place, counts, layout), StatesHome(layout),
                          numerics_);
  };
  for (const WholePlace place : {WholePlace::kEvenBlocks, WholePlace::kOddBlocks}) {
    add(states_of(share.block_elements, place), counts.at(place));
  }
  for (const int64_t elements : share.end_elements) {
    add(states_of(elements, WholePlace::kEnds), 1);
    whole.end = std::max(whole.end, elements);
  }
  add(WholeBuffersOf(whole, layout, numerics_), 1);
  const StagingRoom staging = StagingOf(whole, layout, numerics_);
  add(StagingBuffersOf(staging, numerics_), staging.places);
  FactoredTotals factored = share.end_factored;
  factored.tensors += blocks * share.block_factored.tensors;
  factored.elements += blocks * share.block_factored.elements;
  add(FactoredBuffersOf(factored, numerics_), 1);
  return bytes;
}

}  // namespace weft
