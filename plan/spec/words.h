// Enumerations that people write: each has one list of words, WordsOf(E), in the order of its
// values, so that a value's word is its place in the list. Names, parsing, messages, the schema of
// job.yaml follow from it. Pure.
#pragma once
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace weft {

using Words = absl::Span<const absl::string_view>;

// "fp32, bf16, fp16 or fp8". REQUIRES: there are words.
std::string Alternatives(Words words);

// InvalidArgument: "x" is not `what`; use ...
absl::Status NoSuchWord(absl::string_view word, absl::string_view what, Words words);

template <typename E>
absl::string_view WordOf(E value) {
  return WordsOf(value)[static_cast<size_t>(value)];
}

// Returns the value whose word is `word`. `what` names the kind in the message: "a precision".
template <typename E>
absl::StatusOr<E> ParseWord(absl::string_view word, absl::string_view what) {
  const Words words = WordsOf(E{});
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == word) return static_cast<E>(i);
  }
  return NoSuchWord(word, what, words);
}

}  // namespace weft
