#include "data/tokenizer/charsmap.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "data/unicode.h"

namespace weft {
namespace {

// The fields of a unit of Darts (Yata, darts-clone): a value, a label, an offset.
bool HasLeaf(uint32_t unit) {
  return ((unit >> 8) & 1U) == 1;
}
uint32_t ValueOf(uint32_t unit) {
  return unit & ((1U << 31) - 1);
}
uint32_t LabelOf(uint32_t unit) {
  return unit & ((1U << 31) | 0xFFU);
}
uint32_t OffsetOf(uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}

}  // namespace

absl::StatusOr<Charsmap> Charsmap::Read(absl::string_view bytes) {
  uint32_t trie_bytes = 0;
  if (bytes.size() >= 4) std::memcpy(&trie_bytes, bytes.data(), 4);
  if (bytes.size() < 4 || trie_bytes > bytes.size() - 4 || trie_bytes % 4 != 0 || trie_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a precompiled charsmap of ", bytes.size(), " bytes with a trie of ",
                     trie_bytes, ", expected a trie of whole units and texts behind it"));
  }
  Charsmap map;
  map.units_.resize(trie_bytes / 4);
  std::memcpy(map.units_.data(), bytes.data() + 4, trie_bytes);
  map.texts_ = std::string(bytes.substr(4 + trie_bytes));
  for (size_t begin = 0; begin < map.texts_.size();) {
    const size_t end = std::min(map.texts_.find('\0', begin), map.texts_.size());
    if (end - begin > kMostBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("found a precompiled charsmap that replaces by a text of ", end - begin,
                       " bytes, expected at most ", kMostBytes));
    }
    begin = end + 1;
  }
  return map;
}

Charsmap::Replaced Charsmap::Key(absl::string_view text, bool is_longest) const {
  Replaced found;
  size_t place = OffsetOf(units_[0]);
  text = text.substr(0, kMostBytes);
  for (size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == 0) break;
    place ^= byte;
    if (place >= units_.size()) break;
    const uint32_t unit = units_[place];
    if (LabelOf(unit) != byte) break;
    place ^= OffsetOf(unit);
    if (!HasLeaf(unit)) continue;
    if (place >= units_.size()) break;
    const size_t value = ValueOf(units_[place]);
    if (value > texts_.size()) break;
    const size_t end = texts_.find('\0', value);
    found.bytes = at + 1;
    found.text = absl::string_view(texts_).substr(
        value, end == std::string::npos ? absl::string_view::npos : end - value);
    if (!is_longest) break;
  }
  return found;
}

Charsmap::Replaced Charsmap::Longest(absl::string_view text) const {
  return Key(text, true);
}

void Charsmap::AppendByGraphemes(absl::string_view text, size_t most, std::string* out) const {
  constexpr size_t kMostGraphemeBytes = 5;
  for (size_t begin = 0; begin < text.size() && out->size() <= most;) {
    utf8proc_int32_t state = 0;
    Character last = CharacterAt(text, begin);
    size_t end = begin + static_cast<size_t>(last.bytes);
    while (end < text.size()) {
      const Character next = CharacterAt(text, end);
      if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code_point),
                                           static_cast<utf8proc_int32_t>(next.code_point),
                                           &state)) {
        break;
      }
      end += static_cast<size_t>(next.bytes);
      last = next;
    }
    const absl::string_view grapheme = text.substr(begin, end - begin);
    begin = end;
    const Replaced whole =
        grapheme.size() <= kMostGraphemeBytes ? Key(grapheme, false) : Replaced{};
    if (whole.bytes > 0) {
      absl::StrAppend(out, whole.text);
      continue;
    }
    for (size_t at = 0; at < grapheme.size() && out->size() <= most;) {
      const auto size = static_cast<size_t>(CharacterAt(grapheme, at).bytes);
      const Replaced one = Key(grapheme.substr(at, size), false);
      absl::StrAppend(out, one.bytes > 0 ? one.text : grapheme.substr(at, size));
      at += size;
    }
  }
}

absl::StatusOr<std::string> FromBase64(absl::string_view text) {
  std::string bytes;
  if (absl::Base64Unescape(text, &bytes)) return bytes;
  return absl::InvalidArgumentError("found a text that is no base64");
}

}  // namespace weft
