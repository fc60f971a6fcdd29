// Charsmap: the table by which sentencepiece's models replace characters ("precompiled_charsmap"):
// a double array of 32-bit units (the trie of Darts) whose values are places among texts that end
// with a NUL. Immutable; calls from any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

class Charsmap {
 public:
  // A key and a text that replaces one have at most so many bytes; the published ones have 33.
  static constexpr size_t kMostBytes = 256;

  // Reads u32 size of the trie in bytes, little endian, the trie, the texts. InvalidArgument: what
  // was found, what was expected.
  static absl::StatusOr<Charsmap> Read(absl::string_view bytes);

  // Appends `text` as tokenizers has it: each grapheme of less than 6 bytes, else each character of
  // it, becomes the text of the shortest key that it begins with. It stops where `out` has more
  // than `most` bytes.
  void AppendByGraphemes(absl::string_view text, size_t most, std::string* out) const;

  struct Replaced {
    size_t bytes = 0;  // of the longest key that the text begins with; 0: none
    absl::string_view text;
  };
  Replaced Longest(absl::string_view text) const;

 private:
  // Returns the replacement of the shortest (or longest) key that is a beginning of `text`.
  Replaced Key(absl::string_view text, bool is_longest) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

// The bytes of standard base64, with or without its padding; InvalidArgument: it is none.
absl::StatusOr<std::string> FromBase64(absl::string_view text);

}  // namespace weft
