#include "plan/shards/shard.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "plan/block/block_ops.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"

namespace weft {
namespace {

bool IsOnStage(const TensorSpec& tensor, absl::Span<const BlockRange> chunks, int stage,
               int stages) {
  switch (tensor.part) {
    case ModelPart::kEmbedding:
      return stage == 0;
    case ModelPart::kBlock:
      return std::any_of(chunks.begin(), chunks.end(), [&](const BlockRange& blocks) {
        return tensor.block >= blocks.begin && tensor.block < blocks.end;
      });
    case ModelPart::kHead:
      return stage == stages - 1;
  }
  return false;
}

TensorShard ShardOf(const TensorSpec& tensor, const Layout& layout, int tp_index) {
  int tp = layout.tp;
  TensorShard shard;
  shard.tensor = tensor;
  shard.begin.assign(tensor.dims.size(), 0);
  shard.end = tensor.dims;
  if (tensor.split_dim < 0) {
    shard.primary = tp_index == 0;
    if (tensor.sum == GradientSum::kOwnTokens) shard.gradient_parts = layout.sequence_ranks();
    if (tensor.sum == GradientSum::kOwnHeads) shard.gradient_parts = layout.tp;
    return shard;
  }
  const auto dim = static_cast<size_t>(tensor.split_dim);
  const int64_t units = tensor.dims[dim] / tensor.split_unit;
  if (units < tp) {
    CHECK(tp % units == 0);
    shard.gradient_parts = static_cast<int>(tp / units);
    shard.primary = tp_index % shard.gradient_parts == 0;
    tp = static_cast<int>(units);
    tp_index /= shard.gradient_parts;
  }
  const Range range = SplitRange(tensor.dims[dim], tensor.split_unit, tp, tp_index);
  shard.begin[dim] = range.begin;
  shard.end[dim] = range.end;
  return shard;
}

}  // namespace

int64_t TensorShard::elements() const {
  int64_t product = 1;
  for (size_t d = 0; d < begin.size(); ++d) product *= end[d] - begin[d];
  return product;
}

std::vector<int64_t> TensorShard::dims() const {
  std::vector<int64_t> sizes;
  for (size_t d = 0; d < begin.size(); ++d) sizes.push_back(end[d] - begin[d]);
  return sizes;
}

std::vector<TensorShard> ShardsOf(const ModelShape& model, const Layout& layout, int rank) {
  const GridCoordinates at = layout.grid().CoordinatesOf(rank);
  std::vector<BlockRange> chunks;
  for (int chunk = 0; chunk < layout.virtual_stages; ++chunk) {
    chunks.push_back(ChunkBlocks(layout, model.num_blocks, at.pp, chunk));
  }
  const bool holds_tied_copy = model.tied_embeddings && at.pp > 0 && at.pp == layout.pp - 1;
  std::vector<TensorShard> shards;
  TensorShard tied_copy;
  for (const TensorSpec& tensor : Tensors(model)) {
    if (IsOnStage(tensor, chunks, at.pp, layout.pp)) {
      shards.push_back(ShardOf(tensor, layout, at.tp));
    } else if (holds_tied_copy && tensor.name == kTokenEmbeddingName) {
      tied_copy = ShardOf(tensor, layout, at.tp);
      tied_copy.primary = false;
    }
  }
  if (holds_tied_copy) shards.push_back(std::move(tied_copy));
  return shards;
}

Range SplitRange(int64_t extent, int64_t unit, int parts, int part) {
  CHECK(unit >= 1 && extent % unit == 0);
  const BlockRange units = EvenSplit(extent / unit, parts, part);
  return {units.begin * unit, units.end * unit};
}

int KvHeadCopies(const ModelShape& model, const Layout& layout) {
  return static_cast<int>(std::max<int64_t>(1, layout.tp / model.num_kv_heads));
}

bool HasGradientParts(const ModelShape& model, const Layout& layout) {
  if (layout.tp == 1) return false;
  if (KvHeadCopies(model, layout) > 1 || layout.sequence_ranks() > 1) return true;
  const BlockOps ops = OpsOf(model, 0);
  return std::any_of(ops.params.begin(), ops.params.end(),
                     [](const BlockParam& param) { return param.sum == GradientSum::kOwnHeads; });
}

std::string ShardText(const TensorShard& shard) {
  std::string text = absl::StrCat(shard.tensor.name, "[");
  for (size_t d = 0; d < shard.begin.size(); ++d) {
    absl::StrAppend(&text, d == 0 ? "" : ",", shard.begin[d], ":", shard.end[d]);
  }
  absl::StrAppend(&text, "]");
  return text;
}

}  // namespace weft
