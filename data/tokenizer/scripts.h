// Scripts of characters: those that \p{..} of an expression names, and those between which
// UnicodeScripts of Hugging Face's tokenizers cuts. make_scripts.py writes the tables, which are in
// the order of code points. Pure.
#pragma once
#include <cstdint>

#include "absl/types/span.h"

namespace weft {

// A script as Unicode's files name it. PCRE2 of Debian 12 knows it unless it is newer than Unicode
// 14.
struct NamedScript {
  const char* name;
  bool is_newer;
};
absl::Span<const NamedScript> ScriptNames();

// Characters that are new in Unicode 15 and 16, by their script.
struct NewerScript {
  char32_t first, last;
  const char* script;
};
absl::Span<const NewerScript> NewerScripts();

// Characters of one script as UnicodeScripts has them: Hiragana, Katakana and Han are one.
struct CutScript {
  char32_t first, last;
  int32_t script;
};
absl::Span<const CutScript> CutScripts();

// The number of a character's script among those; 0: the space, and what it does not know.
int32_t CutScriptOf(char32_t code_point);

}  // namespace weft
