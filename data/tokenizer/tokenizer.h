// Tokenizer: text to token ids and back, by the files that people publish beside a model:
// tokenizer.json of Hugging Face, vocab.json with merges.txt, tiktoken's files, tekken.json and
// sentencepiece's .model. The ids are those of tokenizers, tiktoken and sentencepiece. A text goes
// through added tokens, normalizer, added tokens that are looked for in what is normalized,
// pre-tokenizer, model and post-processor; what a file asks for and weft does not know is refused
// by name when it is opened. Immutable; calls from any thread, each with a TokenizerScratch of its
// own.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "data/tokenizer/added_tokens.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/decoder.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/pre_tokenizer.h"
#include "data/tokenizer/unigram.h"
#include "data/tokenizer/vocabulary.h"

namespace weft {

// Bytes that are no UTF-8 are an error, or a U+FFFD.
enum class InvalidUtf8 { kRefuse, kReplace };

struct EncodeOptions {
  Specials specials = Specials::kText;
  InvalidUtf8 invalid_utf8 = InvalidUtf8::kRefuse;
  bool adds_ends =
      true;  // what the post-processor puts around a text, <|begin_of_text|> and the like
};

// The parts of a tokenizer are as its files state them.
struct TokenizerParts {
  std::vector<AddedToken> added;
  bool normalizes_added = true;  // the contents of normalized ones go through the normalizer
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  std::variant<std::shared_ptr<const Bpe>, std::shared_ptr<const Unigram>,
               std::shared_ptr<const WordPiece>>
      model;
  std::vector<int32_t> before, after;  // of each text
  std::vector<DecoderStep> decoder;
  Vocabulary texts;  // of each id, as the decoder takes them
  std::set<int32_t> ends_of_text;
};

// The id of an added token or of one of the vocabulary, by its text there.
std::optional<int32_t> IdOfToken(const TokenizerParts& parts, const std::string& text);

// TokenizerScratch is what encoding writes into. It serves one tokenizer.
class TokenizerScratch {
 private:
  friend class Tokenizer;
  PieceScratch pieces_;
  BpeScratch bpe_;
  std::string replaced_, normalized_;
};

class Tokenizer {
 public:
  // `path`: a folder that holds one of the files, in the order of this header's list but
  // tokenizer.json before all, or the file itself, beside which nothing is read. InvalidArgument:
  // "file: which key, what was found, what was expected".
  static absl::StatusOr<Tokenizer> Open(const std::string& path);
  // InvalidArgument: the contents of an added token cannot be normalized, or they are too many.
  static absl::StatusOr<Tokenizer> Make(TokenizerParts parts);

  // Appends the ids of a text. InvalidArgument: bytes that are no UTF-8, or a special token, where
  // they are refused, and at which byte; a text of 2 GiB or more; a character that no token has of
  // a tokenizer without an unknown one. ResourceExhausted: the tokenizer's expression tries too
  // much.
  absl::Status Encode(absl::string_view text, const EncodeOptions& options,
                      TokenizerScratch* scratch, std::vector<int32_t>* ids) const;
  // The same, for one text.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const EncodeOptions& options = {}) const;

  // The text of ids, which of a byte-level tokenizer may end inside a character; an id without a
  // text has none. `keeps_bytes`: of the others too, in place of a U+FFFD.
  std::string Decode(absl::Span<const int32_t> ids, bool skips_specials = false,
                     bool keeps_bytes = false) const;

  // The post-processor puts these before and behind a text.
  const std::vector<int32_t>& before() const { return parts_.before; }
  const std::vector<int32_t>& after() const { return parts_.after; }
  // IdOfToken of its parts.
  std::optional<int32_t> IdOf(const std::string& token) const;

  int64_t vocab_size() const;             // largest id + 1
  std::set<int32_t> special_ids() const;  // of added tokens
  const std::set<int32_t>& ends_of_text() const { return parts_.ends_of_text; }
  // Whether the text of ids is the texts of each, one after the other.
  bool decodes_each() const;

 private:
  Tokenizer() = default;
  absl::Status EncodeRest(absl::string_view text, bool is_first, Specials specials,
                          TokenizerScratch* scratch, std::vector<int32_t>* ids) const;
  absl::Status EncodePieces(absl::string_view text, bool is_first, TokenizerScratch* scratch,
                            std::vector<int32_t>* ids) const;

  TokenizerParts parts_;
  AddedTokens as_given_, normalized_;
  bool asks_first_ = false;  // a step minds whether a piece begins the text
  std::set<int32_t> special_ids_;
};

// DecodeStream: the text of ids that come one by one, each piece as soon as it is settled.
class DecodeStream {
 public:
  explicit DecodeStream(const Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  // Returns what the id adds to the text; it may end inside a character.
  std::string Take(int32_t id);
  // Returns what was held back, at the end.
  std::string Rest();

 private:
  const Tokenizer* tokenizer_;
  std::vector<int32_t> ids_;  // whose text counts for what comes next
  size_t num_before_ = 0;     // of them, the first ones are shown
  std::string shown_;         // the text of those
};

}  // namespace weft
