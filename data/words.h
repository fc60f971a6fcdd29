// These rules say where a byte-level tokenizer cuts text into words before it merges bytes: each is
// the regular expression that published tokenizers state, written out. Pure; any bytes are taken.
#pragma once
#include <cstddef>
#include <optional>

#include "absl/strings/string_view.h"

namespace weft {

enum class WordRule {
  // GPT-2 (Radford et al., 2019), and whoever writes pre_tokenizer ByteLevel with use_regex:
  //   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // Llama 3 (Grattafiori et al., arXiv:2407.21783), as tiktoken's cl100k:
  //   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|
  //   \s*[\r\n]+|\s+(?!\S)|\s+
  kLlama3,
};

// The rule that this expression states; nullopt: one that is not built in.
std::optional<WordRule> WordRuleOf(absl::string_view expression);

// Length in bytes of the first word of `text`. REQUIRES: not empty.
size_t FirstWord(WordRule rule, absl::string_view text);

}  // namespace weft
