// The expressions by which published byte-level tokenizers cut words, each with what it finds in
// ASCII (ascii_words.h). A file states its expression itself; tiktoken's files and GPT-2's pair of
// files do not, and have it from here.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "data/tokenizer/ascii_words.h"

namespace weft {

struct PublishedWords {
  // gpt2, llama3, qwen2, qwen3.5, o200k, tekken, as tokenizer.json and tekken.json have them; r50k
  // and cl100k, as tiktoken has them.
  const char* name;
  std::string expression;
  AsciiWordRules rules;
};
const std::vector<PublishedWords>& AllPublishedWords();

// REQUIRES: one of the names.
const std::string& PublishedExpression(absl::string_view name);

// The rules of an expression, as files state it; nullopt: it is none of these.
std::optional<AsciiWordRules> AsciiWordRulesOf(absl::string_view expression);

}  // namespace weft
