// tiktoken's files and Mistral's tekken.json become the parts of a Tokenizer. Both list the bytes
// of tokens by rank; neighbours merge whose bytes together have the lowest rank.
#pragma once
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/json_text.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

// Whether the text begins as tiktoken's files do: lines "base64 rank".
bool IsTiktoken(absl::string_view text);

// The file says neither where words end nor what specials there are: its name does, which is one of
// r50k_base, p50k_base, cl100k_base, o200k_base, o200k_harmony, llama3, with .tiktoken or .model
// behind it; a tokenizer.model of 128,000 lines is llama3's. InvalidArgument: "path: what was
// found, what was expected".
absl::StatusOr<TokenizerParts> PartsOfTiktoken(absl::string_view text, const std::string& path);

absl::StatusOr<TokenizerParts> PartsOfTekken(const LargeJson& json, const std::string& path);

}  // namespace weft
