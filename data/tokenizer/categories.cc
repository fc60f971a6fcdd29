#include "data/tokenizer/categories.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "data/unicode.h"

namespace weft {
namespace {

// Range of NewerCategories that holds the code point; null: none does.
const CategoryRange* NewerRange(char32_t code_point) {
  const absl::Span<const CategoryRange> ranges = NewerCategories();
  const auto* const after = std::upper_bound(
      ranges.begin(), ranges.end(), code_point,
      [](char32_t value, const CategoryRange& range) { return value < range.first; });
  if (after == ranges.begin() || code_point > (after - 1)->last) return nullptr;
  return after - 1;
}

}  // namespace

bool IsIn(absl::Span<const PointRange> ranges, char32_t code_point) {
  const auto* const after =
      std::upper_bound(ranges.begin(), ranges.end(), code_point,
                       [](char32_t value, const PointRange& range) { return value < range.first; });
  return after != ranges.begin() && code_point <= (after - 1)->last;
}

bool IsSpace(char32_t code_point) {
  return (code_point >= 0x9 && code_point <= 0xD) || code_point == 0x20 || code_point == 0x85 ||
         code_point == 0xA0 || code_point == 0x1680 ||
         (code_point >= 0x2000 && code_point <= 0x200A) || code_point == 0x2028 ||
         code_point == 0x2029 || code_point == 0x202F || code_point == 0x205F ||
         code_point == 0x3000;
}

bool IsWord(char32_t code_point) {
  if (code_point == 0x200C || code_point == 0x200D) return true;  // joiners
  const CategoryRange* const newer = NewerRange(code_point);
  const char* const category =
      newer ? newer->category : utf8proc_category_string(static_cast<utf8proc_int32_t>(code_point));
  if (category[0] == 'L' || category[0] == 'M') return true;
  if (!std::strcmp(category, "Nd") || !std::strcmp(category, "Nl")) return true;
  if (!std::strcmp(category, "Pc")) return true;
  // Letters in circles and squares are alphabetic; digits above and below the line are not.
  return code_point >= 0x2000 && IsIn(WordBesides(), code_point);
}

char32_t ToLower(char32_t code_point) {
  const absl::Span<const PointRange> pairs = NewerLower();
  const auto* const found =
      std::lower_bound(pairs.begin(), pairs.end(), code_point,
                       [](const PointRange& pair, char32_t value) { return pair.first < value; });
  if (found != pairs.end() && found->first == code_point) return found->last;
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code_point)));
}

bool HasNewerCharacter(absl::string_view text) {
  constexpr unsigned char kFirstLead = 0xE0;  // U+0897 is the first of them: E0 A2 97
  for (size_t at = 0; at < text.size();) {
    if (at + 8 <= text.size()) {
      uint64_t eight = 0;
      std::memcpy(&eight, text.data() + at, sizeof(eight));
      if ((eight & 0x8080808080808080U) == 0) {
        at += 8;
        continue;
      }
    }
    if (static_cast<unsigned char>(text[at]) < kFirstLead) {
      ++at;
      continue;
    }
    const Character character = CharacterAt(text, at);
    const char32_t point = character.code_point;
    const bool is_common = (point >= 0x3000 && point < 0xA7CB && point > 0x31EF) ||
                           (point >= 0xAC00 && point < 0x10000);
    if (!is_common && NewerRange(point) != nullptr) return true;
    at += static_cast<size_t>(character.bytes);
  }
  return false;
}

void AppendCharacter(char32_t code_point, std::string* text) {
  std::array<utf8proc_uint8_t, 4> bytes = {};
  const utf8proc_ssize_t size =
      utf8proc_encode_char(static_cast<utf8proc_int32_t>(code_point), bytes.data());
  text->append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

}  // namespace weft
