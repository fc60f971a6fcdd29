// AsciiWords: the expressions by which published byte-level tokenizers cut words, written out for
// ASCII, which most of a text is: there they find the same words as PCRE2 in a fifth of the time.
// Where a character that is not ASCII may decide, nothing is said. Pure.
#pragma once
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace weft {

// The known expressions differ in this.
struct AsciiWordRules {
  bool has_any_prefix = false;  // a letter may follow any [^\r\n\p{L}\p{N}]; false: a space alone
  bool is_cased = false;        // capitals begin a word (o200k)
  int64_t most_digits = 0;      // of a number; 0: any, and a space before it belongs to it
  bool begins_contractions = false;  // 's, 't, 're, 've, 'm, 'll, 'd are words
  bool ignores_case = false;         // of those
  bool ends_contractions = false;    // and belong to the word before them (o200k)
  bool ends_lines = false;    // line ends behind signs belong to them, those in spaces end a word
  bool ends_slashes = false;  // and slashes too
  bool joins_last_spaces = false;  // spaces at the end of the text are one word (cl100k)
};

// Returns where the word that begins at `at` ends; 0: a character that is not ASCII may decide.
// REQUIRES: at < text.size().
size_t AsciiWordEnd(const AsciiWordRules& rules, absl::string_view text, size_t at);

}  // namespace weft
