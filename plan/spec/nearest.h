// Nearest suggests what a person may have meant by an unknown word. Pure.
#pragma once
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

// The candidate that takes the fewest insertions, deletions and replacements of a character, the
// first among equals; nothing if all take too many to be meant.
std::optional<std::string> Nearest(absl::string_view word,
                                   absl::Span<const std::string> candidates);

}  // namespace weft
