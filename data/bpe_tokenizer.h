// BpeTokenizer: byte-level byte-pair encoding (GPT-2: Radford et al., 2019), from the files that
// Hugging Face publishes beside a model. Tokens that were added by name are found first; the text
// between them is cut into words, each word's bytes are merged pair by pair in the order of the
// merge list, and what is left are the tokens. Any bytes can be encoded; they come back unchanged,
// but for white space that an added token takes along and for what the post-processor puts around
// the text. Immutable after Open; calls from any thread.
//
// Files write a byte as a printable character: 33-126, 161-172 and 174-255 as the character of that
// code, the 68 others as U+0100 and up, in order.
#pragma once
#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer_files.h"

namespace weft {

class BpeTokenizer {
 public:
  // Fails as ReadTokenizerFiles (data/tokenizer_files.h) does; also InvalidArgument for a
  // vocabulary that lacks a byte and for merges that it does not hold.
  static absl::StatusOr<BpeTokenizer> Open(const std::string& path);

  // Encodes as transformers' tokenizer(text) does: "<|endoftext|>" in the text is that token, and
  // what the tokenizer puts around each text (a token that begins it) is there.
  std::vector<int32_t> Encode(absl::string_view text) const;
  // The bytes of a token; empty for an id that has none.
  std::string Decode(int32_t id) const;

  int64_t vocab_size() const { return static_cast<int64_t>(bytes_.size()); }  // largest id + 1
  // The tokens that end a text, as the tokenizer's files state them.
  const std::set<int32_t>& ends_of_text() const { return ends_of_text_; }

 private:
  struct Merge {
    int32_t rank = 0;
    int32_t id = 0;  // of the two together
  };

  BpeTokenizer() = default;
  absl::Status Build(const TokenizerFiles& files, const std::string& path);
  void Name(int32_t id, std::string bytes);
  void EncodePiece(absl::string_view piece, std::vector<int32_t>* ids) const;
  void EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const;

  std::vector<std::string> bytes_;                        // by id
  int32_t byte_ids_[256] = {};                            // of each byte alone
  std::unordered_map<uint64_t, Merge> merges_;            // by the ids of left and right
  std::unordered_map<std::string, int32_t> whole_words_;  // by bytes; empty: merges alone decide
  AddedTokens added_;
  WordRule word_rule_ = WordRule::kGpt2;
  std::vector<int32_t> before_, after_;  // of every text
  std::set<int32_t> ends_of_text_;
};

}  // namespace weft
