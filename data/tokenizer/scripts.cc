#include "data/tokenizer/scripts.h"

#include <algorithm>

namespace weft {

int32_t CutScriptOf(char32_t code_point) {
  const absl::Span<const CutScript> ranges = CutScripts();
  const auto* const after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](char32_t value, const CutScript& range) { return value < range.first; });
  if (after == ranges.begin() || code_point > (after - 1)->last) return 0;
  return (after - 1)->script;
}

}  // namespace weft
