// Places at which a text is cut into pieces that threads take one each. Pure.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// A text beyond this is encoded in parts, so that what encoding takes is bounded.
inline constexpr size_t kPartBytes = size_t{1} << 20;
// A part grows to this where no place to cut is found.
inline constexpr size_t kMostPartBytes = size_t{16} << 20;

// Returns the end of the last line; 0: none ends.
size_t EndOfLastLine(absl::string_view text);

// Returns the end of the last paragraph, behind the empty lines that end it; 0: none ends.
size_t EndOfLastParagraph(absl::string_view text);

// Returns the last place where a line begins with a letter behind one that ends with no space; 0:
// there is none. Each half has the tokens there that it has in the whole, if the tokenizer cuts
// words as people's byte-level ones do: none of their expressions joins an end of line with a
// letter behind it.
size_t EndOfLastPart(absl::string_view text);

// Returns how much of `text`, which goes on behind it, is the next part: up to EndOfLastPart of
// `most_bytes`, and where there is none all of it but a character that is not complete.
size_t CutAnywhere(absl::string_view text);

// Calls `take(part)` for each part of a text that is whole, in order; ends with the first error.
template <typename Take>
auto ForEachPart(absl::string_view text, const Take& take) -> decltype(take(text)) {
  while (text.size() > kPartBytes) {
    size_t end = EndOfLastPart(text.substr(0, kPartBytes + 1));
    for (size_t most = 2 * kPartBytes; end == 0 && most < text.size(); most *= 2) {
      end = EndOfLastPart(text.substr(0, most));
      if (end == 0 && most >= kMostPartBytes) end = CutAnywhere(text.substr(0, most));
    }
    if (end == 0) break;
    auto status = take(text.substr(0, end));
    if (!status.ok()) return status;
    text.remove_prefix(end);
  }
  return take(text);
}

}  // namespace weft
