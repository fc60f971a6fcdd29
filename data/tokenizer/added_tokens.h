// AddedTokens: texts that are tokens as they stand ("<|endoftext|>"), found in a text before its
// rest is normalized and cut, as Hugging Face's tokenizers do: at each place the longest, from left
// to right; first those that are looked for in the text as it was given (normalized: false), then,
// in what is left and normalized, the others. Immutable; calls from any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/pair_table.h"

namespace weft {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool is_normalized = false;
  bool takes_left_space = false;   // lstrip: the white space before it belongs to it
  bool takes_right_space = false;  // rstrip: and behind it
  bool is_single_word = false;     // no word character may stand beside it
  bool is_special = false;         // it is not a text's: what Specials says holds for it
};

// A special token that stands in a text is an error, text as any other, or that token.
enum class Specials { kRefuse, kText, kParse };

class AddedTokens {
 public:
  // The added tokens of one kind of text; empty contents are left out, and of equal ones all but
  // the last.
  explicit AddedTokens(const std::vector<AddedToken>& tokens = {});

  using TakeToken = std::function<void(int32_t id)>;
  using TakeRest = std::function<absl::Status(size_t begin, size_t end)>;

  // Calls `token` for each that stands in the text and `rest` for each stretch between them, none
  // of them empty, from left to right. InvalidArgument: a special token, where they are refused;
  // else what `rest` returns.
  absl::Status Cut(absl::string_view text, Specials specials, const TakeToken& token,
                   const TakeRest& rest) const;
  bool empty() const { return tokens_.empty(); }

 private:
  struct Found {
    size_t at = 0;
    const AddedToken* token = nullptr;  // null: none
  };
  // A node is what has been read of contents: the longest that some of them begin with, of what
  // ends here (Aho and Corasick, CACM 1975).
  struct Node {
    int32_t fallback = 0;    // the node of the next shorter one
    uint32_t num_bytes = 0;  // that it stands for
    int32_t token = -1;      // the longest content that ends here; -1: none does
  };
  Found FirstFrom(absl::string_view text, size_t at) const;
  void PutFallbacks();
  int32_t Next(int32_t node, unsigned char byte) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;            // node 0 is the root
  PairTable children_;                 // (node, byte) -> node
  std::array<bool, 256> begins_ = {};  // whether a content begins with the byte
};

}  // namespace weft
