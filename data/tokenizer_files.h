// ReadTokenizerFiles reads what the files that Hugging Face publishes beside a model say of its
// tokenizer: tokenizer.json, or the older vocab.json and merges.txt. Only byte-level byte-pair
// encodings are read; what another tokenizer would do with a text is refused by name, never passed
// over.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/statusor.h"
#include "data/added_tokens.h"
#include "data/words.h"

namespace weft {

struct TokenizerFiles {
  std::unordered_map<std::string, int32_t> vocabulary;  // as the file writes bytes
  std::vector<std::string> merges;                      // "left right", the first merged first
  std::vector<AddedToken> added;
  WordRule words = WordRule::kGpt2;
  bool whole_words_first = false;  // ignore_merges: a word of the vocabulary is its token
  // The post-processor puts these around a text, <|begin_of_text|> and the like.
  std::vector<int32_t> before, after;
  // eos_token of tokenizer_config.json and of special_tokens_map.json; where neither states one,
  // "<|endoftext|>" if there is such a token.
  std::set<int32_t> ends_of_text;
};

// `path`: a folder that holds tokenizer.json, or vocab.json and merges.txt; or a tokenizer.json,
// beside which nothing is read. InvalidArgument: "file: what was found, what was
// expected".
absl::StatusOr<TokenizerFiles> ReadTokenizerFiles(const std::string& path);

}  // namespace weft
