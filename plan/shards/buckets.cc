#include "plan/shards/buckets.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plan/errors.h"

namespace weft {
namespace {

int64_t RoundUp(int64_t value, int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Embedding and head are one bucket: their table is the same memory.
bool SharesTable(bool tied, const Layout& layout) {
  return tied && layout.pp == 1;
}

std::string BucketNameOf(const TensorShard& shard, const Layout& layout, bool tied, int stage) {
  const TensorSpec& tensor = shard.tensor;
  if (tensor.part == ModelPart::kBlock) return absl::StrCat("blocks.", tensor.block);
  if (SharesTable(tied, layout)) return "embedding";
  // A tied table's copy on the last stage is used there by the head.
  const bool is_copy = tensor.part == ModelPart::kEmbedding && stage > 0;
  return tensor.part == ModelPart::kHead || is_copy ? "head" : "embedding";
}

std::vector<TensorShard> InMemoryOrder(std::vector<TensorShard> shards) {
  const auto is_qkv = [](const TensorShard& shard, absl::string_view kind) {
    absl::string_view name = shard.tensor.name;
    return absl::ConsumeSuffix(&name, kind) &&
           (absl::EndsWith(name, ".attn.q") || absl::EndsWith(name, ".attn.k") ||
            absl::EndsWith(name, ".attn.v"));
  };
  for (auto first = shards.begin(); first != shards.end();) {
    auto last = first;
    while (last != shards.end() && (is_qkv(*last, ".weight") || is_qkv(*last, ".bias"))) ++last;
    std::stable_partition(first, last, [&](const auto& shard) { return is_qkv(shard, ".weight"); });
    first = last == first ? first + 1 : last;
  }
  return shards;
}

}  // namespace

Sharding ShardingOf(const Layout& layout) {
  const int parts = layout.zero_stage == 0 ? 1 : layout.zero_ranks();
  return {.parts = parts,
          .gradients = parts > 1 && layout.zero_stage >= 2,
          .weights = parts > 1 && layout.zero_stage >= 3};
}

int64_t BucketUnit(OptimizerStates optimizer) {
  return optimizer == OptimizerStates::kTwoMoments8Bit ? kStateBlock : 16;
}

std::vector<Bucket> BucketsOf(const ModelShape& model, const Layout& layout, int rank,
                              OptimizerStates optimizer) {
  const int stage = layout.grid().CoordinatesOf(rank).pp;
  std::vector<Bucket> buckets;
  for (TensorShard& shard : ShardsOf(model, layout, rank)) {
    const std::string name = BucketNameOf(shard, layout, model.tied_embeddings, stage);
    auto found = std::find_if(buckets.begin(), buckets.end(),
                              [&](const Bucket& bucket) { return bucket.name == name; });
    if (found == buckets.end()) {
      buckets.emplace_back().name = name;
      found = buckets.end() - 1;
    }
    found->shards.push_back(std::move(shard));
  }
  const int64_t unit = BucketUnit(optimizer);
  for (Bucket& bucket : buckets) {
    bucket.shards = InMemoryOrder(std::move(bucket.shards));
    for (const TensorShard& shard : bucket.shards) {
      bucket.offsets.push_back(bucket.elements);
      bucket.elements += RoundUp(shard.elements(), unit);
    }
  }
  GridCoordinates first = layout.grid().CoordinatesOf(rank);
  if (first.tp == 0) return buckets;
  first.tp = 0;
  const std::vector<Bucket> largest =
      BucketsOf(model, layout, layout.grid().RankOf(first), optimizer);
  for (size_t i = 0; i < buckets.size(); ++i) {
    buckets[i].offsets = largest[i].offsets;
    buckets[i].elements = largest[i].elements;
  }
  return buckets;
}

int64_t PartElements(int64_t elements, int parts, int64_t unit) {
  CHECK(parts >= 1 && unit >= 1);
  return RoundUp(RoundUp(elements, parts) / parts, unit);
}

std::vector<Piece> PiecesOf(const Bucket& bucket, int parts, int part, int64_t unit) {
  CHECK(part >= 0 && part < parts);
  const int64_t size = PartElements(bucket.elements, parts, unit);
  const int64_t begin = size * part;
  std::vector<Piece> pieces;
  for (size_t i = 0; i < bucket.shards.size(); ++i) {
    const int64_t start = bucket.offsets[i];
    const Range range = {std::max<int64_t>(0, begin - start),
                         std::min(bucket.shards[i].elements(), begin + size - start)};
    if (range.begin >= range.end) continue;
    pieces.push_back({.shard = i, .range = range, .offset = start + range.begin - begin});
  }
  return pieces;
}

std::vector<TensorShard> BoxesOf(const TensorShard& shard, const Range& range) {
  CHECK(range.begin >= 0 && range.begin < range.end && range.end <= shard.elements());
  std::vector<TensorShard> boxes;
  const int64_t cols = shard.end.back() - shard.begin.back();
  const bool is_matrix = shard.begin.size() == 2;
  for (int64_t at = range.begin; at < range.end;) {
    const int64_t col = at % cols;
    const int64_t left = range.end - at;
    const int64_t rows = col == 0 ? std::max<int64_t>(1, left / cols) : 1;
    const int64_t width = rows > 1 ? cols : std::min(left, cols - col);
    TensorShard& box = boxes.emplace_back(shard);
    if (is_matrix) {
      box.begin[0] = shard.begin[0] + at / cols;
      box.end[0] = box.begin[0] + rows;
    }
    box.begin.back() = shard.begin.back() + col;
    box.end.back() = box.begin.back() + width;
    at += rows * width;
  }
  return boxes;
}

}  // namespace weft
