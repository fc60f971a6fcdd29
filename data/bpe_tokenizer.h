// BpeTokenizer: GPT-2's byte-level byte-pair encoding (Radford et al., 2019), from the files that
// Hugging Face publishes beside a model. Text is cut into words, each word's bytes are merged pair
// by pair in the order of the merge list, and what is left are the tokens. Any bytes can be encoded
// and come back unchanged. Immutable after Open; calls from any thread.
//
// Files write a byte as a printable character: 33-126, 161-172 and 174-255 as the character of that
// code, the 68 others as U+0100 and up, in order.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

class BpeTokenizer {
 public:
  // `path`: a folder that holds tokenizer.json, or vocab.json and merges.txt; or a tokenizer.json.
  // InvalidArgument: "file: what was found, what was expected"; also for a tokenizer of another
  // kind.
  static absl::StatusOr<BpeTokenizer> Open(const std::string& path);

  std::vector<int32_t> Encode(absl::string_view text) const;
  // The bytes of a token; empty for an id that has none.
  std::string Decode(int32_t id) const;

  int64_t vocab_size() const { return static_cast<int64_t>(bytes_.size()); }  // largest id + 1
  std::optional<int32_t> end_of_text() const { return end_of_text_; }         // "<|endoftext|>"

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;  // of the two together
  };

  BpeTokenizer() = default;
  absl::Status Build(const std::unordered_map<std::string, int32_t>& vocabulary,
                     const std::vector<std::string>& merges, const std::string& file);
  void EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const;

  std::vector<std::string> bytes_;              // by id
  int32_t byte_ids_[256] = {};                  // of each byte alone
  std::unordered_map<uint64_t, Merge> merges_;  // by the ids of left and right
  std::optional<int32_t> end_of_text_;
};

// Length in bytes of the first word of `text`, as GPT-2's pattern cuts it:
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
// REQUIRES: not empty.
size_t FirstWord(absl::string_view text);

}  // namespace weft
