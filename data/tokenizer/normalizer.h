// Normalizer: how a tokenizer changes a text before it cuts it, step by step, as the normalizers of
// Hugging Face's tokenizers do, and sentencepiece's own. A piece comes in and a piece goes out:
// nobody needs to know here where a character came from. Immutable; calls from any thread, each
// with a RegexScratch of its own.
#pragma once
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/regex.h"

namespace weft {

// The forms of Unicode's normalization (UAX 15).
enum class UnicodeForm { kNfc, kNfd, kNfkc, kNfkd };

struct LowercaseStep {};
struct StripStep {
  bool is_left = true, is_right = true;
};
struct StripAccentsStep {};
struct ReplaceStep {
  std::string text;              // to look for, if there is no expression
  std::shared_ptr<Regex> regex;  // null: a text
  std::string by;
};
struct PrependStep {
  std::string text;
};
struct BertStep {
  bool cleans = true, spaces_chinese = true, strips_accents = true, lowers = true;
};
struct NmtStep {};
struct ByteCharactersStep {};  // each byte becomes its printable character
// sentencepiece's own: the charsmap's longest keys, spaces joined and marked, a mark before the
// text.
struct SentencePieceStep {
  std::shared_ptr<Charsmap> charsmap;  // null: characters stay
  bool adds_prefix = true, joins_spaces = true, marks_spaces = true, has_suffix_marks = false;
  // Texts that the charsmap does not change: user-defined pieces. Null: none.
  std::shared_ptr<const AddedTokens> kept;
};

using NormalizerStep =
    std::variant<UnicodeForm, LowercaseStep, StripStep, StripAccentsStep, ReplaceStep, PrependStep,
                 BertStep, NmtStep, ByteCharactersStep, Charsmap, SentencePieceStep>;

// Puts `*text` through the steps. REQUIRES: UTF-8. ResourceExhausted as Regex::Find.
// *keeps_beginning, if it is not null: the text still begins with what it began with, changed or
// not; false: that was dropped.
absl::Status Normalize(const std::vector<NormalizerStep>& steps, RegexScratch* scratch,
                       std::string* text, bool* keeps_beginning = nullptr);

// `text` with each `what`, from the left, as `by`; an empty `what` is nowhere.
std::string ReplacedAll(absl::string_view text, absl::string_view what, absl::string_view by);

}  // namespace weft
