// ShardsOf says which ranges of which global tensors a rank holds. A tensor is cut nowhere else.
// Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "plan/spec/layout.h"
#include "plan/spec/model.h"

namespace weft {

// A box of a global tensor: [begin[d], end[d]) along each dim d.
struct TensorShard {
  TensorSpec tensor;
  std::vector<int64_t> begin;
  std::vector<int64_t> end;
  // True on exactly one rank of a replica for each element: that rank counts it in the gradient
  // norm and (with dp index 0) in checkpoints. False on copies: tensors that tp does not cut on
  // tp ranks > 0, kv heads on all but the first of the ranks that share them, and the last stage's
  // copy of a tied embedding.
  bool primary = true;
  // Neighbouring tp ranks that hold this very box and make a part of its gradient each, which have
  // to be summed: k and v where there are fewer kv heads than tp ranks, norms where tokens are cut
  // over tp (sequence parallelism), norms of heads (GradientSum).
  int gradient_parts = 1;

  int64_t elements() const;
  std::vector<int64_t> dims() const;  // end - begin
};

// All tensors resident on `rank`, in the order of Tensors(model); the tied copy on the last stage
// comes last, under its own name embed.tokens.weight. Cuts are as even as possible in split_unit
// units, earlier tp ranks take the remainder, so no padding is ever stored. Fewer units (kv heads)
// than tp ranks: each unit is held by tp / units neighbours.
// REQUIRES: CheckModel and CheckLayout hold; 0 <= rank < layout.world_size().
std::vector<TensorShard> ShardsOf(const ModelShape& model, const Layout& layout, int rank);

// The part [begin, end) that index `part` of `parts` gets of `extent`, cut on multiples of `unit`.
// REQUIRES: extent % unit == 0.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};
Range SplitRange(int64_t extent, int64_t unit, int parts, int part);

// Neighbouring tp ranks that share a kv head: tp / num_kv_heads, or 1.
int KvHeadCopies(const ModelShape& model, const Layout& layout);

// Says whether tp ranks make parts of the gradient of some tensor (TensorShard::gradient_parts).
bool HasGradientParts(const ModelShape& model, const Layout& layout);

// "blocks.7.attn.q.weight[0:1536,0:4096]"
std::string ShardText(const TensorShard& shard);

}  // namespace weft
