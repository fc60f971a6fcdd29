// TokenText: text to token ids and back, as a checkpoint's data format means them, and the way out
// to a terminal, which must not see half a character.
#pragma once
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/tokenizer.h"
#include "plan/spec/job_spec.h"

namespace weft {

class TokenText {
 public:
  // Bytes are their own ids; files of other formats (nullopt: of any) hold ids that a tokenizer
  // made, so that without `tokenizer` (a path for Tokenizer::Open; may be empty) there is no
  // text. InvalidArgument if bytes come with a tokenizer; else the tokenizer's errors.
  static absl::StatusOr<TokenText> Open(std::optional<TokenFormat> format,
                                        const std::string& tokenizer);

  bool has_text() const { return format_ == TokenFormat::kBytes || tokenizer_.has_value(); }
  // Ids below it have a text. REQUIRES: has_text().
  int64_t vocabulary() const;
  // The ids that end a text, as the tokenizer's files state them.
  std::set<int32_t> ends_of_text() const;
  // InvalidArgument: what the options refuse of the text; of bytes nothing is. REQUIRES:
  // has_text().
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const EncodeOptions& options) const;
  // Null where ids are bytes.
  const Tokenizer* tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }

 private:
  std::optional<TokenFormat> format_;  // nullopt: of some tokenizer
  std::optional<Tokenizer> tokenizer_;
};

// "text" and "refuse" -> what to do with special tokens in a text (refuse, text, parse) and with
// bytes that are no UTF-8 (refuse, replace). InvalidArgument naming the word and those that are
// known.
absl::StatusOr<EncodeOptions> ParseEncodeOptions(absl::string_view specials,
                                                 absl::string_view invalid_utf8);

// "464,3290 318" -> {464, 3290, 318}. InvalidArgument naming the first part that is no id.
absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text);

// Text that comes in pieces of any bytes, given on in pieces that end between characters. Nothing
// is added, lost or changed.
class CharacterStream {
 public:
  // Returns what can be shown now that `piece` is there.
  std::string Take(absl::string_view piece);
  // Returns what was held back, at the end.
  std::string Rest();

 private:
  std::string held_;
};

// The text of ids that come one by one, in pieces that end between characters.
class TextStream {
 public:
  explicit TextStream(const TokenText* text);
  // Returns what can be shown now that the id is there.
  std::string Take(int32_t id);
  // Returns what was held back, at the end.
  std::string Rest();

 private:
  std::optional<DecodeStream> decoder_;  // nullopt: ids are bytes
  CharacterStream characters_;
};

}  // namespace weft
