// AddedTokens: texts that are tokens as they stand ("<|endoftext|>"), found in a text before its
// rest is cut into words, as Hugging Face's tokenizers do: at each place the longest, from left to
// right; first those that are looked for in the text as it was given (normalized: false), then, in
// what is left, the others. Immutable; calls from any thread.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct AddedToken {
  std::string content;
  int32_t id = 0;
  bool normalized = false;
  bool lstrip = false;  // takes the white space before it along
  bool rstrip = false;  // and behind it
};

class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<AddedToken>& tokens = {});  // empty contents are left out

  // Calls `token` for each that stands in the text and `rest` for each piece of text between them,
  // none of them empty, from left to right.
  void Cut(absl::string_view text, const std::function<void(int32_t id)>& token,
           const std::function<void(absl::string_view piece)>& rest) const;

 private:
  struct Found {
    size_t at = 0;
    const AddedToken* token = nullptr;  // null: none
  };
  class Index {
   public:
    void Add(const AddedToken& token);
    Found FirstFrom(absl::string_view text, size_t at) const;
    void Cut(absl::string_view text, const std::function<void(int32_t)>& token,
             const std::function<void(absl::string_view)>& rest) const;

   private:
    std::unordered_map<std::string, AddedToken> tokens_;
    std::array<std::vector<size_t>, 256> lengths_;  // by first byte; longest first
  };

  Index as_given_, normalized_;
};

}  // namespace weft
