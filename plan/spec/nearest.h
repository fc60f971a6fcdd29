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

// "did you mean x?" where Nearest finds one, else "the nearest are a, b, c; " and `all`, which says
// where all of them stand: a list of all helps nobody.
std::string Suggestion(absl::string_view word, absl::Span<const std::string> candidates,
                       absl::string_view all);

}  // namespace weft
