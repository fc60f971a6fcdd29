// Whole places: where a bucket that ZeRO keeps in parts (plan/shards/buckets.h) is whole while a
// pass works on it: "whole/weights/<place>" at ZeRO stage 3, "whole/gradients/<place>" from
// stage 2. Embedding and head share a place, a stage's blocks take two in turns: while a pass works
// on a bucket, the weights of the next one arrive and the gradients of the last one leave.
//
// A bucket that would have its place to itself is not cut but kept whole, as at lower stages of
// ZeRO: a part beside the place would take more memory, and its gathers and sums in each pass more
// time than one of each per step. So a stage of a pipeline, which never holds both embedding and
// head, never holds more at a higher stage of ZeRO; and a tied table of which the last stage holds
// a copy is whole where its two copies are summed. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/shards/buckets.h"
#include "plan/spec/layout.h"
#include "plan/spec/words.h"

namespace weft {

enum class WholePlace { kEnds = 0, kEvenBlocks = 1, kOddBlocks = 2 };
inline constexpr size_t kWholePlaces = 3;
Words WordsOf(WholePlace);  // "ends", "even", "odd"

// `index` counts the stage's blocks over all its chunks, in network order.
inline WholePlace PlaceOfBlock(int64_t index) {
  return index % 2 == 0 ? WholePlace::kEvenBlocks : WholePlace::kOddBlocks;
}
// Returns a place for each of a rank's buckets.
std::vector<WholePlace> WholePlacesOf(absl::Span<const Bucket> buckets);

// BucketCounts counts a stage's buckets: ends of the network (embedding, head), and blocks.
struct BucketCounts {
  int64_t ends = 0;
  int64_t blocks = 0;

  // Returns the number of buckets that use the place.
  int64_t at(WholePlace place) const {
    if (place == WholePlace::kEnds) return ends;
    return place == WholePlace::kEvenBlocks ? (blocks + 1) / 2 : blocks / 2;
  }
  bool IsShared(WholePlace place) const { return at(place) > 1; }
};

// Returns what is cut of a bucket of `place` on a stage with `counts`.
Sharding ShardingAt(WholePlace place, const BucketCounts& counts, const Layout& layout);

// Says whether any stage has a place that buckets share. If not, ZeRO 2 and 3 are ZeRO 1 by other
// names.
bool SharesPlaces(const Layout& layout, int64_t num_blocks, bool tied);

}  // namespace weft
