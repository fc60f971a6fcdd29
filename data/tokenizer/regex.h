// Regex: a regular expression as tokenizers' files state it, in the syntax of Oniguruma
// (tokenizer.json) or of fancy-regex (tiktoken), run by PCRE2 with its compiler. Classes are
// widened to Unicode 16 where a text needs that. What means one thing there and another here is
// refused by name. A Regex is immutable; calls from any thread, each with a RegexScratch of its
// own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/ascii_words.h"

namespace weft {

// The dialect says what ^ and $ mean: the ends of lines (Oniguruma) or of the text; and what is
// refused since it means another thing there.
enum class RegexDialect { kOniguruma, kFancy };

// RegexScratch is what matching writes into. It holds what one text may cost.
class RegexScratch {
 public:
  RegexScratch();
  // A text of so many bytes begins: all its matches together may try 10 million ways and 64 a byte.
  void Restart(size_t text_bytes);

 private:
  friend class Regex;
  struct Memory;
  struct Free {
    void operator()(Memory* memory) const;
  };
  std::unique_ptr<Memory, Free> memory_;
  uint64_t tries_left_ = 0;
};

class Regex {
 public:
  // InvalidArgument: the expression, what in it is not known, or what PCRE2 says of it and where.
  static absl::StatusOr<Regex> Compile(const std::string& expression, RegexDialect dialect);

  struct Match {
    size_t begin = 0, end = 0;
    bool is_found = false;
  };
  // The form of the expression that a text needs: the plain one is faster.
  bool NeedsWide(absl::string_view text) const;
  // The words that it finds in ASCII, if it is one of the known expressions.
  const std::optional<AsciiWordRules>& words() const { return words_; }
  // Returns the first match from `at` on. REQUIRES: text is UTF-8, at <= text.size() lies between
  // characters, is_wide is NeedsWide of the text or true. ResourceExhausted: the matches since the
  // scratch was restarted try more ways than it has left.
  absl::StatusOr<Match> Find(absl::string_view text, size_t at, bool is_wide,
                             RegexScratch* scratch) const;

 private:
  struct Code;
  Regex() = default;
  static absl::StatusOr<std::shared_ptr<const Code>> CompileOne(const std::string& expression,
                                                                const std::string& shown,
                                                                RegexDialect dialect);
  std::shared_ptr<const Code> plain_, wide_;
  std::optional<AsciiWordRules> words_;
};

// The expression with \s, \S, \w, \W, and, if `is_wide`, \p{..} and \d as Unicode 16 has them.
// InvalidArgument, naming what is not known: \b, \h, classes in classes, (?m).
absl::StatusOr<std::string> WidenedExpression(absl::string_view expression, bool is_wide,
                                              RegexDialect dialect);

}  // namespace weft
