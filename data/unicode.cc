#include "data/unicode.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

bool Continues(char byte) {
  return (static_cast<unsigned char>(byte) & 0xC0) == 0x80;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (character.code_point == kNoCharacter) return false;
    at += static_cast<size_t>(character.bytes);
  }
  return true;
}

int64_t CharacterBytes(unsigned char first) {
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first < 0xE0) return 2;
  if (first >= 0xE0 && first < 0xF0) return 3;
  return first >= 0xF0 && first < 0xF5 ? 4 : 0;
}

Character CharacterAt(absl::string_view text, size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const int64_t bytes = CharacterBytes(first);
  if (bytes == 1) return {first, 1};
  const Character broken = {kNoCharacter, 1};
  if (bytes == 0 || at + static_cast<size_t>(bytes) > text.size()) return broken;
  char32_t value = first & (0x7FU >> bytes);
  for (int64_t i = 1; i < bytes; ++i) {
    const char next = text[at + static_cast<size_t>(i)];
    if (!Continues(next)) return broken;
    value = value << 6 | (static_cast<unsigned char>(next) & 0x3FU);
  }
  // Longer than need be, half of a surrogate pair, or beyond the last code point.
  const bool overlong = (bytes == 3 && value < 0x800) || (bytes == 4 && value < 0x10000);
  if (overlong || (value >= 0xD800 && value < 0xE000) || value > 0x10FFFF) return broken;
  return {value, bytes};
}

int64_t UnfinishedBytes(absl::string_view text) {
  const auto size = static_cast<int64_t>(text.size());
  for (int64_t back = 1; back <= std::min<int64_t>(3, size); ++back) {
    const char byte = text[static_cast<size_t>(size - back)];
    if (!Continues(byte)) {
      return CharacterBytes(static_cast<unsigned char>(byte)) > back ? back : 0;
    }
  }
  return 0;
}

std::string Printable(absl::string_view text) {
  std::string shown;
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    const char32_t value = character.code_point;
    const bool control = value < 0x20 || (value >= 0x7f && value < 0xa0);  // C0, DEL and C1
    const bool turns = (value >= 0x202a && value <= 0x202e) || (value >= 0x2066 && value <= 0x2069);
    const bool stays = value == '\n' || value == '\t';
    const absl::string_view bytes = text.substr(at, static_cast<size_t>(character.bytes));
    if (stays || (!control && !turns && value != kNoCharacter)) {
      absl::StrAppend(&shown, bytes);
    } else {
      for (const char byte : bytes) {
        absl::StrAppend(&shown, "\\x",
                        absl::Hex(static_cast<unsigned char>(byte), absl::kZeroPad2));
      }
    }
    at += bytes.size();
  }
  return shown;
}

size_t BrokenBytes(absl::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const auto whole = static_cast<size_t>(CharacterBytes(first));
  if (whole < 2 || text.size() < 2) return 1;
  const auto second = static_cast<unsigned char>(text[1]);
  const bool is_long_enough =
      (first != 0xE0 || second >= 0xA0) && (first != 0xF0 || second >= 0x90);
  const bool is_in_range = (first != 0xED || second < 0xA0) && (first != 0xF4 || second < 0x90);
  size_t bytes = 1;
  if (!is_long_enough || !is_in_range) return bytes;
  while (bytes < whole && bytes < text.size() && Continues(text[bytes])) ++bytes;
  return bytes;
}

}  // namespace weft
