// Before they train, all ranks add up what each of them is known to bring: so a network or a
// library that loses or alters data is found at the start, by the rank whose part is wrong. Pure.
#pragma once
#include <vector>

#include "absl/status/status.h"

namespace weft {

// Returns what a rank brings: its place among at most kMostPlaces holds rank + 1, the others 0.
inline constexpr int kMostPlaces = 1024;
std::vector<double> WorldPart(int rank, int world_size);

// Internal, naming the first rank whose part is not in `sum` as it ought to be.
absl::Status CheckWorldSum(const std::vector<double>& sum, int world_size);

}  // namespace weft
