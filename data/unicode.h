// This is the part of Unicode that a stream of text and a terminal need: characters of UTF-8 (RFC
// 3629). Any bytes are taken: those that are no character stand for themselves. Pure.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// The value of a byte that is in no character.
inline constexpr char32_t kNoCharacter = 0xFFFFFFFF;

struct Character {
  char32_t code_point = kNoCharacter;
  int64_t bytes = 1;
};
// REQUIRES: at < text.size().
Character CharacterAt(absl::string_view text, size_t at);

// Returns whether `text` is UTF-8.
bool IsUtf8(absl::string_view text);

// Bytes of a character by its first byte; 0: no character begins with it.
int64_t CharacterBytes(unsigned char first);

// Bytes at the end of `text` that begin a character which is not complete: 0 to 3.
int64_t UnfinishedBytes(absl::string_view text);

// `text` as a terminal may show it: lines and tabs stay; other control characters, those that turn
// the direction of what follows, and bytes that are no character become \x1b.
std::string Printable(absl::string_view text);

// Bytes of what is no character at the beginning of `text`, and is one U+FFFD where such are
// replaced: the longest that begins a character, else one (Unicode 16, 3.9, D93b). REQUIRES: no
// character begins it, and it is not empty.
size_t BrokenBytes(absl::string_view text);

}  // namespace weft
