#include "plan/shards/whole_places.h"

#include <algorithm>

#include "plan/errors.h"

namespace weft {

Words WordsOf(WholePlace) {
  static constexpr absl::string_view kWords[] = {"ends", "even", "odd"};
  return kWords;
}

std::vector<WholePlace> WholePlacesOf(absl::Span<const Bucket> buckets) {
  std::vector<WholePlace> places;
  int64_t blocks = 0;
  for (const Bucket& bucket : buckets) {
    const bool is_block = bucket.shards.front().tensor.part == ModelPart::kBlock;
    places.push_back(is_block ? PlaceOfBlock(blocks++) : WholePlace::kEnds);
  }
  return places;
}

Sharding ShardingAt(WholePlace place, const BucketCounts& counts, const Layout& layout) {
  Sharding sharding = ShardingOf(layout);
  const bool is_shared = counts.IsShared(place);
  sharding.gradients = sharding.gradients && is_shared;
  sharding.weights = sharding.weights && is_shared;
  return sharding;
}

bool SharesPlaces(const Layout& layout, int64_t num_blocks, bool tied) {
  if (layout.pp == 1 && !tied) return true;
  // No stage of an even split has more blocks than the first.
  const int64_t most =
      layout.layers_per_stage.empty()
          ? StageBlockCount(layout, num_blocks, 0)
          : *std::max_element(layout.layers_per_stage.begin(), layout.layers_per_stage.end());
  return BucketCounts{.blocks = most}.IsShared(WholePlace::kEvenBlocks);
}

}  // namespace weft
