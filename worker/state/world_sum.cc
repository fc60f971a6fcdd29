#include "worker/state/world_sum.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {

std::vector<double> WorldPart(int rank, int world_size) {
  const int places = std::min(world_size, kMostPlaces);
  std::vector<double> part(static_cast<size_t>(places));
  part[static_cast<size_t>(rank % places)] = rank + 1;
  return part;
}

absl::Status CheckWorldSum(const std::vector<double>& sum, int world_size) {
  const int places = std::min(world_size, kMostPlaces);
  for (int place = 0; place < places; ++place) {
    double expected = 0;
    for (int rank = place; rank < world_size; rank += places) expected += rank + 1;
    const double found = sum[static_cast<size_t>(place)];
    if (found == expected) continue;
    return absl::InternalError(absl::StrCat(
        "an all-reduce over all ", world_size, " ranks gave ", found, " instead of ", expected,
        " for rank ", place, places < world_size ? absl::StrCat(" or one ", places, " beyond") : "",
        "; look at the network and the memory of its host"));
  }
  return absl::OkStatus();
}

}  // namespace weft
