#include "data/prepare/text_cuts.h"

#include "data/unicode.h"

namespace weft {
namespace {

struct LetterRange {
  char32_t first, last;
};
// Letters at which lines begin in most of the world's text. None is a mark, a space or a digit.
constexpr LetterRange kLetters[] = {
    {'A', 'Z'},       {'a', 'z'},       {0xC0, 0xD6},   {0xD8, 0xF6},     {0xF8, 0x24F},
    {0x391, 0x3A1},   {0x3A3, 0x3FF},   {0x400, 0x481}, {0x48A, 0x52F},   {0x5D0, 0x5EA},
    {0x620, 0x64A},   {0x904, 0x939},   {0xE01, 0xE30}, {0x3041, 0x3096}, {0x30A1, 0x30FA},
    {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3},
};

bool IsLetter(char32_t code) {
  for (const LetterRange& range : kLetters) {
    if (code >= range.first && code <= range.last) return true;
  }
  return false;
}

bool IsContinuation(char byte) {
  return (byte & '\xC0') == '\x80';
}

// The character that ends before `at`; a letter, or one of ASCII or CJK punctuation, is no space.
bool EndsWithNoSpace(absl::string_view text, size_t at) {
  size_t begin = at - 1;
  while (begin > 0 && at - begin < 4 && IsContinuation(text[begin])) --begin;
  const char32_t code = CharacterAt(text.substr(0, at), begin).code_point;
  const bool is_graphic = code > 0x20 && code < 0x7F;
  return is_graphic || IsLetter(code) || (code >= 0x3001 && code <= 0x3011) ||
         (code >= 0xFF01 && code <= 0xFF1F);
}

}  // namespace

size_t EndOfLastLine(absl::string_view text) {
  const size_t newline = text.rfind('\n');
  return newline == absl::string_view::npos ? 0 : newline + 1;
}

size_t EndOfLastParagraph(absl::string_view text) {
  // Not at the very end: the next byte may be an empty line more.
  for (size_t at = text.size(); at >= 3; --at) {
    if (text[at - 2] != '\n' || text[at - 1] == '\n' || text[at - 1] == '\r') continue;
    const size_t end = at - 1;
    const bool has_return = text[end - 2] == '\r';
    if (text[end - 2] == '\n' || (has_return && end >= 3 && text[end - 3] == '\n')) return end;
  }
  return 0;
}

size_t EndOfLastPart(absl::string_view text) {
  for (size_t at = text.rfind('\n'); at != absl::string_view::npos && at >= 1;
       at = text.rfind('\n', at - 1)) {
    if (at + 1 < text.size() && IsLetter(CharacterAt(text, at + 1).code_point) &&
        EndsWithNoSpace(text, at)) {
      return at + 1;
    }
  }
  return 0;
}

size_t CutAnywhere(absl::string_view text) {
  const size_t end = text.size() - static_cast<size_t>(UnfinishedBytes(text));
  return end > 0 ? end : text.size();
}

}  // namespace weft
