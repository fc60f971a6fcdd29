#include "data/tokenizer/ascii_words.h"

#include <array>

namespace weft {
namespace {

// A blank is white space but \r and \n.
enum Class : uint8_t { kSign, kUpper, kLower, kDigit, kBlank, kLine, kWide };

constexpr std::array<uint8_t, 256> MakeClasses() {
  std::array<uint8_t, 256> classes = {};
  for (size_t byte = 0; byte < 256; ++byte) {
    Class of = kSign;
    if (byte >= 0x80) of = kWide;
    if (byte >= 'A' && byte <= 'Z') of = kUpper;
    if (byte >= 'a' && byte <= 'z') of = kLower;
    if (byte >= '0' && byte <= '9') of = kDigit;
    if (byte == ' ' || byte == '\t' || byte == 0xB || byte == 0xC) of = kBlank;
    if (byte == '\r' || byte == '\n') of = kLine;
    classes[byte] = of;
  }
  return classes;
}

constexpr std::array<uint8_t, 256> kClasses = MakeClasses();

// AsciiWord walks over one word.
class AsciiWord {
 public:
  AsciiWord(const AsciiWordRules& rules, absl::string_view text, size_t at)
      : rules_(rules), text_(text), begin_(at) {}

  size_t End() const {
    const uint8_t first = ClassAt(begin_);
    if (first == kWide) return 0;
    if (first == kSign && text_[begin_] == '\'' && rules_.begins_contractions) {
      bool is_open = false;
      const size_t end = ContractionEnd(begin_, &is_open);
      if (is_open) return 0;
      if (end != begin_) return end;
    }
    const bool is_letter = first == kUpper || first == kLower;
    if (is_letter) return LettersEnd(begin_);
    if (first == kDigit) return DigitsEnd(begin_);
    const bool is_space = text_[begin_] == ' ';
    const uint8_t next = ClassAt(begin_ + 1);
    const bool takes_prefix = rules_.has_any_prefix ? first != kLine : is_space;
    if (takes_prefix && next == kWide) return 0;
    if (takes_prefix && (next == kUpper || next == kLower)) return LettersEnd(begin_ + 1);
    if (is_space && next == kDigit && rules_.most_digits == 0) return DigitsEnd(begin_ + 1);
    if (first == kSign) return SignsEnd(begin_);
    if (is_space && next == kSign) return SignsEnd(begin_ + 1);
    return SpacesEnd();
  }

 private:
  static constexpr uint8_t kEnd = kWide + 1;
  uint8_t ClassAt(size_t at) const {
    return at < text_.size() ? kClasses[static_cast<unsigned char>(text_[at])]
                             : static_cast<uint8_t>(kEnd);
  }
  char LowerAt(size_t at) const {
    const char byte = at < text_.size() ? text_[at] : '\0';
    return rules_.ignores_case && byte >= 'A' && byte <= 'Z' ? static_cast<char>(byte + 32) : byte;
  }

  // `at` if there is none. *is_open: what follows is not ASCII, as the long s, which is an s.
  size_t ContractionEnd(size_t at, bool* is_open) const {
    if (ClassAt(at) == kEnd || text_[at] != '\'') return at;
    if (ClassAt(at + 1) == kWide) *is_open = true;
    const char one = LowerAt(at + 1), two = LowerAt(at + 2);
    if (one == 's' || one == 't' || one == 'm' || one == 'd') return at + 2;
    const bool is_long = (one == 'l' && two == 'l') || ((one == 'r' || one == 'v') && two == 'e');
    return is_long ? at + 3 : at;
  }

  size_t LettersEnd(size_t at) const {
    if (rules_.is_cased) {
      while (ClassAt(at) == kUpper) ++at;
      while (ClassAt(at) == kLower) ++at;
    } else {
      while (ClassAt(at) == kUpper || ClassAt(at) == kLower) ++at;
    }
    if (ClassAt(at) == kWide) return 0;
    bool is_open = false;
    if (rules_.ends_contractions) at = ContractionEnd(at, &is_open);
    return is_open ? 0 : at;
  }

  size_t DigitsEnd(size_t at) const {
    const size_t most =
        rules_.most_digits == 0 ? text_.size() : at + static_cast<size_t>(rules_.most_digits);
    while (at < most && ClassAt(at) == kDigit) ++at;
    return at < most && ClassAt(at) == kWide ? 0 : at;
  }

  size_t SignsEnd(size_t at) const {
    while (ClassAt(at) == kSign) ++at;
    if (ClassAt(at) == kWide) return 0;
    if (!rules_.ends_lines) return at;
    while (ClassAt(at) == kLine ||
           (rules_.ends_slashes && ClassAt(at) == kSign && text_[at] == '/')) {
      ++at;
    }
    return at;
  }

  size_t SpacesEnd() const {
    size_t end = begin_, behind_line = 0;
    while (ClassAt(end) == kBlank || ClassAt(end) == kLine) {
      ++end;
      if (ClassAt(end - 1) == kLine) behind_line = end;
    }
    if (ClassAt(end) == kWide) return 0;
    const bool is_last = end == text_.size();
    if (is_last && rules_.joins_last_spaces) return end;
    if (rules_.ends_lines && behind_line > 0) return behind_line;
    return is_last || end == begin_ + 1 ? end : end - 1;
  }

  const AsciiWordRules& rules_;
  const absl::string_view text_;
  const size_t begin_;
};

}  // namespace

size_t AsciiWordEnd(const AsciiWordRules& rules, absl::string_view text, size_t at) {
  return AsciiWord(rules, text, at).End();
}

}  // namespace weft
