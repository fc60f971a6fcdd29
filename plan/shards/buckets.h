// Buckets: a rank's tensors in the groups that are used together, and so reduced and gathered
// together: one per block, one for the embedding, one for the head. In memory a bucket is one flat
// run of its tensors. Under ZeRO (Rajbhandari et al., arXiv:1910.02054) the run is cut into as many
// equal parts as there are ranks to share it; part i belongs to the i-th of them, whatever tensors
// it cuts through. Without ZeRO the one part is the whole run. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "plan/shards/shard.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "plan/spec/optimizer.h"

namespace weft {

// A Sharding says what a layout's ZeRO stage cuts into parts: optimizer states at any stage,
// gradients from stage 2, weights at stage 3. plan/shards/whole_places.h says of which buckets.
// With one part nothing is cut.
struct Sharding {
  int parts = 1;
  bool gradients = false;
  bool weights = false;
};
Sharding ShardingOf(const Layout& layout);

struct Bucket {
  std::string name;  // "embedding", "blocks.3", "head"
  // Shards are in memory order: q, k and v weights of a block lie next to each other, then their
  // biases, so that the three may be one matrix (plan/shards/fused_linears.h).
  std::vector<TensorShard> shards;
  std::vector<int64_t> offsets;  // of each shard, in elements from the start of the run
  int64_t elements = 0;          // of the run; its end is a multiple of BucketUnit
};

// Tensors start, and parts are cut, on multiples of this many elements: 64 bytes of fp32; whole
// blocks of what is quantised in blocks, so that these are the same however the run is cut.
int64_t BucketUnit(OptimizerStates optimizer);

// The buckets of `rank`, in network order. A table that embedding and head share makes them one
// bucket. Tp ranks lay theirs out as the first of them does, who holds the most of a vocabulary
// that tp does not divide: what they hold copies of then lies in the same part on each. REQUIRES:
// CheckModel and CheckLayout hold.
std::vector<Bucket> BucketsOf(const ModelShape& model, const Layout& layout, int rank,
                              OptimizerStates optimizer);

// Elements of each of `parts` equal parts of a run, as few as cover it.
int64_t PartElements(int64_t elements, int parts, int64_t unit);

// A Piece is the range of one tensor that lies in a part of a bucket.
struct Piece {
  size_t shard = 0;    // index in the bucket
  Range range;         // of the shard's own box, row-major
  int64_t offset = 0;  // of range.begin, in elements from the start of the part
};

// Returns the pieces in part `part` of `parts`, in memory order. REQUIRES: 0 <= part < parts.
std::vector<Piece> PiecesOf(const Bucket& bucket, int parts, int part, int64_t unit);

// Range `range` of the shard's box, row-major, as boxes whose values follow each other: the end of
// a row, whole rows, the start of a row. Each is `shard` otherwise.
std::vector<TensorShard> BoxesOf(const TensorShard& shard, const Range& range);

}  // namespace weft
