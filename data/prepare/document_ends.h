// The tokens around a document: where one ends and the next begins is all that packed training
// knows of documents. Pure.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "data/prepare/prepared.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

// Stand for what follows from tokenizer and output, and for no token.
inline constexpr char kEndsOfTokenizer[] = "tokenizer";
inline constexpr char kNoEnd[] = "none";

struct DocumentEnds {
  std::vector<int32_t> before, after;
};

// `begin`, `end`: kEndsOfTokenizer, kNoEnd, a token's text or an id. Of kEndsOfTokenizer a document
// begins and ends as the tokenizer's post-processor has it, or ends with its one end of text;
// llm.c has the end of text before each document instead. InvalidArgument: no such token; the
// tokenizer states no end of text, or several: the message lists them.
absl::StatusOr<DocumentEnds> EndsOfDocuments(const Tokenizer& tokenizer, TokenOutput output,
                                             const std::string& begin, const std::string& end);

// "50256 <|endoftext|>", or "nothing".
std::string TokensText(const Tokenizer& tokenizer, const std::vector<int32_t>& ids);

}  // namespace weft
