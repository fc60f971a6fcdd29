#include "data/tokenizer/tokenizer.h"

#include <simdjson.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/unicode.h"
#include "plan/errors.h"

namespace weft {
namespace {

// Returns where the first byte that is in no character lies.
size_t FirstBroken(absl::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Character character = CharacterAt(text, at);
    if (character.code_point == kNoCharacter) break;
    at += static_cast<size_t>(character.bytes);
  }
  return at;
}

}  // namespace

std::optional<int32_t> IdOfToken(const TokenizerParts& parts, const std::string& text) {
  for (const AddedToken& token : parts.added) {
    if (token.content == text) return token.id;
  }
  const int32_t id = parts.texts.Find(text);
  return id == kNoToken ? std::nullopt : std::optional(id);
}

absl::StatusOr<Tokenizer> Tokenizer::Make(TokenizerParts parts) {
  Tokenizer tokenizer;
  std::vector<AddedToken> as_given, normalized;
  RegexScratch scratch;
  for (AddedToken token : parts.added) {
    if (token.is_special) tokenizer.special_ids_.insert(token.id);
    if (token.is_normalized && parts.normalizes_added) {
      RETURN_IF_ERROR(Normalize(parts.normalizer, &scratch, &token.content));
    }
    (token.is_normalized ? normalized : as_given).push_back(std::move(token));
  }
  for (const std::vector<AddedToken>* const each : {&as_given, &normalized}) {
    size_t bytes = 0;
    for (const AddedToken& token : *each) bytes += token.content.size();
    if (bytes <= kMostAddedBytesTogether) continue;
    return absl::InvalidArgumentError(absl::StrCat("found added tokens of ", bytes,
                                                   " bytes together, expected at most ",
                                                   kMostAddedBytesTogether));
  }
  for (const PreTokenizerStep& step : parts.pre_tokenizer) {
    const auto* const space = std::get_if<MetaspaceStep>(&step);
    tokenizer.asks_first_ |= space && space->prepend == MetaspaceStep::Prepend::kFirst;
  }
  tokenizer.as_given_ = AddedTokens(as_given);
  tokenizer.normalized_ = AddedTokens(normalized);
  tokenizer.parts_ = std::move(parts);
  return tokenizer;
}

absl::Status Tokenizer::Encode(absl::string_view text, const EncodeOptions& options,
                               TokenizerScratch* scratch, std::vector<int32_t>* ids) const {
  if (text.size() >= static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return absl::InvalidArgumentError(
        absl::StrCat("found a text of ", text.size(), " bytes, expected less than 2 GiB; cut it"));
  }
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    if (options.invalid_utf8 == InvalidUtf8::kRefuse) {
      return absl::InvalidArgumentError(absl::StrCat("found a byte that is no UTF-8 at byte ",
                                                     FirstBroken(text),
                                                     " of the text, expected UTF-8; convert it, or "
                                                     "have U+FFFD there (invalid_utf8: replace)"));
    }
    scratch->replaced_ = WithReplacements(text);
    text = scratch->replaced_;
  }
  scratch->pieces_.regex.Restart(text.size());
  if (options.adds_ends) ids->insert(ids->end(), parts_.before.begin(), parts_.before.end());
  RETURN_IF_ERROR(as_given_.Cut(
      text, options.specials, [ids](int32_t id) { ids->push_back(id); },
      [&](size_t begin, size_t end) {
        return EncodeRest(text.substr(begin, end - begin), begin == 0, options.specials, scratch,
                          ids);
      }));
  if (options.adds_ends) ids->insert(ids->end(), parts_.after.begin(), parts_.after.end());
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodeRest(absl::string_view text, bool is_first, Specials specials,
                                   TokenizerScratch* scratch, std::vector<int32_t>* ids) const {
  if (!parts_.normalizer.empty()) {
    scratch->normalized_.assign(text.data(), text.size());
    bool keeps_beginning = true;
    RETURN_IF_ERROR(Normalize(parts_.normalizer, &scratch->pieces_.regex, &scratch->normalized_,
                              asks_first_ ? &keeps_beginning : nullptr));
    text = scratch->normalized_;
    is_first = is_first && keeps_beginning;
  }
  if (normalized_.empty()) return EncodePieces(text, is_first, scratch, ids);
  return normalized_.Cut(
      text, specials, [ids](int32_t id) { ids->push_back(id); },
      [&](size_t begin, size_t end) {
        return EncodePieces(text.substr(begin, end - begin), is_first && begin == 0, scratch, ids);
      });
}

absl::Status Tokenizer::EncodePieces(absl::string_view text, bool is_first,
                                     TokenizerScratch* scratch, std::vector<int32_t>* ids) const {
  if (text.empty()) return absl::OkStatus();
  RETURN_IF_ERROR(PreTokenize(parts_.pre_tokenizer, text, is_first, &scratch->pieces_));
  const std::vector<TextPiece>& pieces = scratch->pieces_.pieces;
  if (const auto* const bpe = std::get_if<std::shared_ptr<const Bpe>>(&parts_.model)) {
    for (const TextPiece& piece : pieces) (*bpe)->Encode(piece.text, &scratch->bpe_, ids);
  } else if (const auto* const unigram =
                 std::get_if<std::shared_ptr<const Unigram>>(&parts_.model)) {
    for (const TextPiece& piece : pieces) RETURN_IF_ERROR((*unigram)->Encode(piece.text, ids));
  } else {
    const auto& word_piece = std::get<std::shared_ptr<const WordPiece>>(parts_.model);
    for (const TextPiece& piece : pieces) word_piece->Encode(piece.text, ids);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       const EncodeOptions& options) const {
  TokenizerScratch scratch;
  std::vector<int32_t> ids;
  RETURN_IF_ERROR(Encode(text, options, &scratch, &ids));
  return ids;
}

std::string Tokenizer::Decode(absl::Span<const int32_t> ids, bool skips_specials,
                              bool keeps_bytes) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    if (!parts_.texts.Has(id)) continue;
    if (skips_specials && special_ids_.count(id) > 0) continue;
    tokens.emplace_back(parts_.texts.Text(id));
  }
  return Decoded(parts_.decoder, std::move(tokens), keeps_bytes);
}

std::optional<int32_t> Tokenizer::IdOf(const std::string& token) const {
  return IdOfToken(parts_, token);
}

int64_t Tokenizer::vocab_size() const {
  return parts_.texts.size();
}

std::set<int32_t> Tokenizer::special_ids() const {
  return special_ids_;
}

bool Tokenizer::decodes_each() const {
  return parts_.decoder.size() == 1 &&
         (std::holds_alternative<ByteLevelDecoding>(parts_.decoder[0]) ||
          std::holds_alternative<FuseDecoding>(parts_.decoder[0]));
}

// A decoder may say of an id what hangs on the one before it: the last ids are decoded with and
// without the new one.
std::string DecodeStream::Take(int32_t id) {
  if (tokenizer_->decodes_each()) return tokenizer_->Decode({id});
  ids_.push_back(id);
  const std::string text = tokenizer_->Decode(ids_, false, true);
  if (!absl::StartsWith(text, shown_) || text.size() == shown_.size()) return "";
  std::string added = text.substr(shown_.size());
  // Ids that have no text of their own may be one more beginning to the decoder: then those before
  // them stay.
  const std::vector<int32_t> last(ids_.begin() + static_cast<ptrdiff_t>(num_before_), ids_.end());
  std::string text_of_last = tokenizer_->Decode(last, false, true);
  shown_ = text_of_last.empty() ? text : std::move(text_of_last);
  if (shown_ != text) ids_ = last;
  num_before_ = ids_.size();
  return added;
}

std::string DecodeStream::Rest() {
  const std::string text = tokenizer_->Decode(ids_, false, true);
  ids_.clear();
  num_before_ = 0;
  const std::string shown = std::exchange(shown_, "");
  return absl::StartsWith(text, shown) ? text.substr(shown.size()) : "";
}

}  // namespace weft
