#include "tests/fuzz/mutation.h"

#include <algorithm>
#include <cctype>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// A value that is legal somewhere, one a word; what holds a space or is no text follows below.
constexpr char kStrangeWords[] =
    "0 -1 1 2 3 7 13 -0 0.5 1e-300 1e-9 1e9 1e18 1e300 1e400 2147483647 2147483648 4294967296 "
    "9007199254740993 9223372036854775807 9223372036854775808 -9223372036854775808 "
    "18446744073709551616 1000000000000000000 0x10 0o17 1_000 1,000 +5 .5 5. nan .nan inf .inf "
    "-.inf NaN true True yes off null ~ auto Auto AUTO none \"\" '' \"12\" 'auto' [] {} [[[]]] *a "
    "!!str | > @x `x` %x 2001-01-01 12:30:45 # --- ... ../../.. /dev/zero /dev/full / ~/x $HOME "
    "%s%n%d gpt2 llama mixtral mistral cpu h100x8 bf16 fp16 fp8 fp32 1f1b gpipe zb_h1 "
    "interleaved_1f1b adamw adamw_8bit sgd lion adafactor adagrad cosine";
constexpr const char* kStrangeTexts[] = {
    "[1, 2]",        "{a: 1}",       "{}: {}",          "- 1",      "&a 1",     "&a [*a]",
    "!!binary aGVs", "!!int 3",      "!!str 3",         "!x y",     "? a",      "a b",
    "a: b",          "\t",           "\xef\xbb\xbf",    "\xff\xfe", "\x1b[31m", "\"\\x1b[2J\"",
    "\"\\0\"",       "\xe2\x80\xae", "\xf0\x9f\xa7\xb5"};

const std::vector<std::string>& StrangeValues() {
  static const auto* const values = [] {
    auto* all = new std::vector<std::string>(absl::StrSplit(kStrangeWords, ' '));
    all->insert(all->end(), std::begin(kStrangeTexts), std::end(kStrangeTexts));
    return all;
  }();
  return *values;
}

bool IsNumber(absl::string_view word) {
  const bool starts = !word.empty() && (std::isdigit(static_cast<unsigned char>(word[0])) != 0 ||
                                        ((word[0] == '-' || word[0] == '.') && word.size() > 1 &&
                                         std::isdigit(static_cast<unsigned char>(word[1])) != 0));
  return starts && word.find_first_not_of("0123456789.+-eE") == absl::string_view::npos;
}

bool IsPlain(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-' ||
         c == '+' || c == '/' || c == '*';
}

// Words outside of comments, each with whether a colon follows it.
std::vector<std::pair<Word, bool>> WordsIn(const std::string& text) {
  std::vector<std::pair<Word, bool>> words;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '#') at = std::min(text.find('\n', at), text.size());
    size_t end = at;
    while (end < text.size() && IsPlain(text[end])) ++end;
    if (end == at) {
      ++at;
      continue;
    }
    size_t after = end;
    if (after < text.size() && (text[after] == '"' || text[after] == '\'')) ++after;
    const bool is_key = after < text.size() && text[after] == ':';
    words.push_back({{at, end - at}, is_key});
    at = end;
  }
  return words;
}

std::vector<Word> Where(const std::string& text, bool is_key) {
  std::vector<Word> found;
  for (const auto& [word, key] : WordsIn(text)) {
    if (key == is_key) found.push_back(word);
  }
  return found;
}

std::vector<std::string> LinesOf(const std::string& text) {
  return absl::StrSplit(text, '\n');
}

std::string DamagedBytes(std::string text, Random& random) {
  const size_t at = random.Below(text.size() + 1);
  const size_t size = std::min(text.size() - at, 1 + random.Below(40));
  switch (random.Below(6)) {
    case 0:
      if (at < text.size()) text[at] = static_cast<char>(random.Below(256));
      return text;
    case 1:
      return text.erase(at, size);
    case 2:
      return text.insert(at, text.substr(at, size));
    case 3:
      return text.substr(0, at);
    case 4: {
      static constexpr char kBytes[] = "\0\x1b\xff\xc3\r\t:{}[]#'\"&*!|>%@`,-?";
      return text.insert(at, 1 + random.Below(3), kBytes[random.Below(sizeof kBytes - 1)]);
    }
    default:
      return random.Once(2) ? "\xef\xbb\xbf" + text : absl::StrJoin(LinesOf(text), "\r\n");
  }
}

std::string DamagedLines(const std::string& text, Random& random) {
  std::vector<std::string> lines = LinesOf(text);
  const size_t at = random.Below(lines.size());
  const size_t other = random.Below(lines.size());
  switch (random.Below(5)) {
    case 0:
      lines.erase(lines.begin() + static_cast<int64_t>(at));
      break;
    case 1:
      lines.insert(lines.begin() + static_cast<int64_t>(other), std::string(lines[at]));
      break;
    case 2:
      std::swap(lines[at], lines[other]);
      break;
    case 3:
      lines[at] = random.Once(2) ? "  " + lines[at]
                                 : lines[at].substr(std::min<size_t>(1, lines[at].size()));
      break;
    default:
      lines[at] += std::string(random.Once(8) ? 200'000 : 300, random.Once(2) ? ' ' : 'x');
  }
  return absl::StrJoin(lines, "\n");
}

std::string DamagedKey(const std::string& text, Random& random) {
  const std::vector<Word> keys = KeysIn(text);
  if (keys.empty()) return text;
  const Word key = random.Of(absl::MakeConstSpan(keys));
  std::string name = text.substr(key.begin, key.size);
  switch (random.Below(4)) {
    case 0:
      name.insert(random.Below(name.size() + 1), 1, static_cast<char>('a' + random.Below(26)));
      break;
    case 1:
      name.erase(random.Below(name.size()), 1);
      break;
    case 2: {
      const Word other = random.Of(absl::MakeConstSpan(keys));
      name = text.substr(other.begin, other.size);
      break;
    }
    default:
      name = StrangeValue(random);
  }
  return WithWord(text, key, name);
}

std::string DamagedValue(const std::string& text, Random& random) {
  const std::vector<Word> values = random.Once(2) ? NumbersIn(text) : ValuesIn(text);
  if (values.empty()) return text;
  const Word value = random.Of(absl::MakeConstSpan(values));
  if (!random.Once(4)) return WithWord(text, value, StrangeValue(random));
  const Word other = random.Of(absl::MakeConstSpan(values));
  return WithWord(text, value, text.substr(other.begin, other.size));
}

// Deeper, longer or more often than anyone writes.
std::string DamagedNesting(const std::string& text, Random& random) {
  const std::vector<Word> values = ValuesIn(text);
  if (values.empty()) return text;
  const Word value = random.Of(absl::MakeConstSpan(values));
  const size_t many = size_t{1} << random.Below(14);
  std::string other;
  switch (random.Below(4)) {
    case 0:
      other = std::string(many, '[') + std::string(random.Once(2) ? many : 0, ']');
      break;
    case 1:
      for (size_t i = 0; i < many; ++i) other += "{a: ";
      break;
    case 2:
      other = "[";
      for (size_t i = 0; i < many; ++i) absl::StrAppend(&other, i == 0 ? "" : ", ", "1");
      other += "]";
      break;
    default:
      other = std::string(many * 16, static_cast<char>('0' + random.Below(10)));
  }
  return WithWord(text, value, other);
}

}  // namespace

uint64_t Random::Next() {
  state_ += 0x9E3779B97F4A7C15;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
  return z ^ (z >> 31);
}

std::vector<Word> ValuesIn(const std::string& text) {
  return Where(text, false);
}

std::vector<Word> NumbersIn(const std::string& text) {
  std::vector<Word> numbers = ValuesIn(text);
  std::erase_if(numbers, [&](Word word) { return !IsNumber(text.substr(word.begin, word.size)); });
  return numbers;
}

std::vector<Word> KeysIn(const std::string& text) {
  return Where(text, true);
}

std::string WithWord(const std::string& text, Word word, const std::string& other) {
  return absl::StrCat(text.substr(0, word.begin), other, text.substr(word.begin + word.size));
}

absl::Span<const std::string> NoNumbers() {
  static const auto* const values = new std::vector<std::string>{
      "abc",  "nan",  ".nan", ".inf",  "-.inf", "inf", "1e400", "[1]", "{a: 1}",
      "\"\"", "true", "0x10", "1_000", "--1",   "1 2", "\"7\"", "1e",  "5 GB"};
  return *values;
}

std::string StrangeValue(Random& random) {
  return random.Of(absl::MakeConstSpan(StrangeValues()));
}

std::string Damaged(std::string text, Random& random) {
  for (size_t left = 1 + random.Below(3); left > 0; --left) {
    const size_t kind = random.Below(12);
    if (kind < 2) {
      text = DamagedBytes(std::move(text), random);
    } else if (kind < 4) {
      text = DamagedLines(text, random);
    } else if (kind < 6) {
      text = DamagedKey(text, random);
    } else if (kind < 11) {
      text = DamagedValue(text, random);
    } else {
      text = DamagedNesting(text, random);
    }
  }
  return text;
}

std::vector<std::string> DamagedCommand(std::vector<std::string> words,
                                        absl::Span<const std::string> others, Random& random) {
  for (size_t left = 1 + random.Below(2); left > 0 && !words.empty(); --left) {
    const size_t at = random.Below(words.size());
    const auto where = words.begin() + static_cast<int64_t>(at);
    switch (random.Below(6)) {
      case 0:
        words.erase(where);
        break;
      case 1:
        words.insert(where, std::string(words[at]));
        break;
      case 2:
        std::swap(words[at], words[random.Below(words.size())]);
        break;
      case 3:
        words.insert(where, random.Of(others));
        break;
      case 4:
        words[at] = DamagedBytes(words[at], random);
        break;
      default:
        words[at] = StrangeValue(random);
    }
  }
  // No argument can hold one.
  for (std::string& word : words) std::erase(word, '\0');
  return words;
}

}  // namespace weft
