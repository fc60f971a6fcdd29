// This file finds where the documents of a packed sample start. Files of tokens hold documents one
// after the other, and a sample is a window of them: it may begin and end within one. Pure.
//
// A document starts at each `bos` token (llm.c writes <|endoftext|> before each) and after each
// `eos` token (nanoGPT and Megatron-LM write it behind). What precedes the first of a sample is the
// rest of a document, and one of its own.
#pragma once
#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"

namespace weft {

// Writes for each token of the sample the position where its document starts, at most its own; 0
// for all if there is neither mark. REQUIRES: both spans have the same size.
void FindDocumentStarts(absl::Span<const int32_t> tokens, std::optional<int64_t> bos,
                        std::optional<int64_t> eos, absl::Span<int32_t> starts);

// Returns the first position that the token at `position` sees within a window of so many tokens,
// its own among them, in a document that starts at `document`.
inline int32_t FirstInWindow(int64_t position, int32_t document, int64_t window) {
  return std::max(document, static_cast<int32_t>(position - window + 1));
}

}  // namespace weft
