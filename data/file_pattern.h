// Files that a person names by a pattern: "corpus/*.txt". Any thread.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// Returns what `pattern` matches, sorted; none if nothing is there. A file of exactly that name
// wins over its meaning as a pattern. InvalidArgument if more is found than a person can mean.
absl::StatusOr<std::vector<std::string>> ExpandFilePattern(const std::string& pattern);

}  // namespace weft
