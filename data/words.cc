#include "data/words.h"

#include "absl/strings/match.h"
#include "data/unicode.h"

namespace weft {
namespace {

constexpr absl::string_view kGpt2Expression =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kLlama3Expression =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr int kMostLlama3Digits = 3;

enum class CharacterClass { kLetter, kNumber, kSpace, kOther };

CharacterClass ClassOf(char32_t code_point) {
  if (IsLetter(code_point)) return CharacterClass::kLetter;
  if (IsNumber(code_point)) return CharacterClass::kNumber;
  return IsSpace(code_point) ? CharacterClass::kSpace : CharacterClass::kOther;
}

CharacterClass ClassAt(absl::string_view text, size_t at) {
  return ClassOf(CharacterAt(text, at).code_point);
}

bool IsNewline(char c) {
  return c == '\r' || c == '\n';
}

// Bytes of the contraction that `text` begins with; 0: none.
size_t Contraction(absl::string_view text, bool any_case) {
  for (const absl::string_view ending : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
    if (any_case ? absl::StartsWithIgnoreCase(text, ending) : absl::StartsWith(text, ending)) {
      return ending.size();
    }
  }
  // The long s (U+017F) is an s to an expression that ignores case.
  return any_case && absl::StartsWith(text, "'\xC5\xBF") ? 3 : 0;
}

// A run of characters of one class.
struct Run {
  size_t end = 0;         // in bytes
  size_t last_begin = 0;  // of its last character
};
Run RunFrom(absl::string_view text, size_t at, CharacterClass wanted, int most = -1) {
  Run run = {at, at};
  for (int count = 0; run.end < text.size() && count != most; ++count) {
    const Character character = CharacterAt(text, run.end);
    if (ClassOf(character.code_point) != wanted) break;
    run.last_begin = run.end;
    run.end += static_cast<size_t>(character.bytes);
  }
  return run;
}

// \s+(?!\S)|\s+: the last space before a word is left to the word, unless it is all there is.
size_t Spaces(absl::string_view text) {
  const Run spaces = RunFrom(text, 0, CharacterClass::kSpace);
  return spaces.end == text.size() || spaces.last_begin == 0 ? spaces.end : spaces.last_begin;
}

size_t FirstGpt2Word(absl::string_view text) {
  if (const size_t contraction = Contraction(text, /*any_case=*/false)) return contraction;
  const size_t space = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  const CharacterClass first = ClassAt(text, space);
  return first == CharacterClass::kSpace ? Spaces(text) : RunFrom(text, space, first).end;
}

size_t FirstLlama3Word(absl::string_view text) {
  if (const size_t contraction = Contraction(text, /*any_case=*/true)) return contraction;
  const CharacterClass first = ClassAt(text, 0);
  if (first == CharacterClass::kLetter) return RunFrom(text, 0, first).end;
  if (first == CharacterClass::kNumber) return RunFrom(text, 0, first, kMostLlama3Digits).end;
  const auto second = static_cast<size_t>(CharacterAt(text, 0).bytes);
  const bool more = second < text.size();
  if (more && !IsNewline(text[0]) && ClassAt(text, second) == CharacterClass::kLetter) {
    return RunFrom(text, second, CharacterClass::kLetter).end;
  }
  const size_t space = text[0] == ' ' && more ? 1 : 0;
  if (ClassAt(text, space) == CharacterClass::kOther) {
    size_t end = RunFrom(text, space, CharacterClass::kOther).end;
    while (end < text.size() && IsNewline(text[end])) ++end;
    return end;
  }
  size_t newline = RunFrom(text, 0, CharacterClass::kSpace).end;
  while (newline > 0 && !IsNewline(text[newline - 1])) --newline;
  return newline > 0 ? newline : Spaces(text);
}

}  // namespace

std::optional<WordRule> WordRuleOf(absl::string_view expression) {
  if (expression == kGpt2Expression) return WordRule::kGpt2;
  if (expression == kLlama3Expression) return WordRule::kLlama3;
  return std::nullopt;
}

size_t FirstWord(WordRule rule, absl::string_view text) {
  return rule == WordRule::kGpt2 ? FirstGpt2Word(text) : FirstLlama3Word(text);
}

}  // namespace weft
