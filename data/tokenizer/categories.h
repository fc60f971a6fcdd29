// Classes of characters as Hugging Face's tokenizers have them (data/tokenizer/newer_unicode.h).
// Pure.
#pragma once
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/tokenizer/newer_unicode.h"

namespace weft {

// Returns whether the code point is in one of the ranges, which are in order.
bool IsIn(absl::Span<const PointRange> ranges, char32_t code_point);

bool IsSpace(char32_t code_point);  // White_Space
bool IsWord(char32_t code_point);   // letters, marks, digits, connectors and joiners

// The small letter of a capital one; any other character itself.
char32_t ToLower(char32_t code_point);

// Returns whether `text`, of whole characters, has one that Unicode 14 classes otherwise.
bool HasNewerCharacter(absl::string_view text);

// Appends the character in UTF-8. REQUIRES: a code point, no surrogate.
void AppendCharacter(char32_t code_point, std::string* text);

}  // namespace weft
