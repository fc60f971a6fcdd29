// StageBuckets: which of a stage's buckets (plan/shards/buckets.h) each pass works on, and in which
// order. From it follows where a gradient is complete, so that its reduction may start, and which
// weights are needed next, so that they may be gathered ahead. Pure.
#pragma once
#include <cstdint>
#include <vector>

#include "plan/schedule/schedule.h"
#include "plan/shards/whole_places.h"
#include "plan/spec/layout.h"

namespace weft {

struct StageBuckets {
  int count = 0;
  int embedding = -1;              // -1: on another stage
  int head = -1;                   // the same bucket as embedding where they share the table
  std::vector<BlockRange> chunks;  // buckets of each chunk's blocks, in network order
  // The bucket with a table of which another stage holds a copy; -1: none.
  int copied_table = -1;

  BucketCounts counts() const;
  WholePlace PlaceOf(int bucket) const;
};

// Indices are those of BucketsOf for any rank of `stage`. REQUIRES: CheckLayout holds.
StageBuckets StageBucketsOf(const Layout& layout, int64_t num_blocks, int stage, bool tied);

// Returns the buckets whose weights the pass takes, in its order. REQUIRES: IsPass(pass.op), of
// that stage.
std::vector<int> WeightsOf(const Action& pass, const StageBuckets& buckets);

// The same of all passes of a schedule, one after the other.
std::vector<int> WeightsOf(absl::Span<const Action> actions, const StageBuckets& buckets);

// Returns the buckets to whose gradients the pass adds, in the order in which it is through with
// them. The head's half of a backward pass is part of the forward pass.
std::vector<int> GradientsOf(const Action& pass, const StageBuckets& buckets);

// Adds a kReduceGradients for each bucket of `reduced`, right after the last pass that adds to it,
// in the order in which that pass is through with them: it starts inside the pass.
std::vector<Action> WithReductions(absl::Span<const Action> actions, const StageBuckets& buckets,
                                   absl::Span<const int> reduced);

}  // namespace weft
