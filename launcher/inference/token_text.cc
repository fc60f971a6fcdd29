#include "launcher/inference/token_text.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/unicode.h"
#include "launcher/job_file/hub_cache.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int64_t kByteIds = 256;

}  // namespace

absl::StatusOr<TokenText> TokenText::Open(std::optional<TokenFormat> format,
                                          const std::string& tokenizer) {
  TokenText text;
  text.format_ = format;
  if (tokenizer.empty()) return text;
  if (format == TokenFormat::kBytes) {
    return absl::InvalidArgumentError(
        "--tokenizer: this model was trained on bytes, which are their own ids; leave it out");
  }
  ASSIGN_OR_RETURN(const std::string local, LocalModel(tokenizer, tokenizer));
  ASSIGN_OR_RETURN(text.tokenizer_, Tokenizer::Open(local));
  return text;
}

int64_t TokenText::vocabulary() const {
  return tokenizer_ ? tokenizer_->vocab_size() : kByteIds;
}

std::set<int32_t> TokenText::ends_of_text() const {
  return tokenizer_ ? tokenizer_->ends_of_text() : std::set<int32_t>();
}

absl::StatusOr<std::vector<int32_t>> TokenText::Encode(absl::string_view text,
                                                       const EncodeOptions& options) const {
  if (tokenizer_) return tokenizer_->Encode(text, options);
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

absl::StatusOr<EncodeOptions> ParseEncodeOptions(absl::string_view specials,
                                                 absl::string_view invalid_utf8) {
  constexpr std::pair<const char*, Specials> kSpecials[] = {
      {"refuse", Specials::kRefuse}, {"text", Specials::kText}, {"parse", Specials::kParse}};
  constexpr std::pair<const char*, InvalidUtf8> kInvalid[] = {{"refuse", InvalidUtf8::kRefuse},
                                                              {"replace", InvalidUtf8::kReplace}};
  EncodeOptions options;
  bool is_known = false;
  for (const auto& [word, value] : kSpecials) {
    if (specials != word) continue;
    options.specials = value;
    is_known = true;
  }
  if (!is_known) {
    return absl::InvalidArgumentError(
        absl::StrCat("--specials: found ", specials, "; use refuse, text or parse"));
  }
  for (const auto& [word, value] : kInvalid) {
    if (invalid_utf8 != word) continue;
    options.invalid_utf8 = value;
    return options;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--invalid-utf8: found ", invalid_utf8, "; use refuse or replace"));
}

absl::StatusOr<std::vector<int32_t>> ParseIds(absl::string_view text) {
  std::vector<int32_t> ids;
  for (const absl::string_view part :
       absl::StrSplit(text, absl::ByAnyChar(", \t\n"), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(part, &id) || id < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("found \"", part, "\", expected token ids such as 464,3290,318"));
    }
    ids.push_back(id);
  }
  return ids;
}

std::string CharacterStream::Take(absl::string_view piece) {
  absl::StrAppend(&held_, piece);
  const size_t whole = held_.size() - static_cast<size_t>(UnfinishedBytes(held_));
  std::string ready = held_.substr(0, whole);
  held_.erase(0, whole);
  return ready;
}

std::string CharacterStream::Rest() {
  return std::exchange(held_, "");
}

TextStream::TextStream(const TokenText* text) {
  if (text->tokenizer() != nullptr) decoder_.emplace(text->tokenizer());
}

std::string TextStream::Take(int32_t id) {
  if (decoder_) return characters_.Take(decoder_->Take(id));
  return characters_.Take(id < kByteIds ? std::string(1, static_cast<char>(id)) : "");
}

std::string TextStream::Rest() {
  std::string rest = decoder_ ? characters_.Take(decoder_->Rest()) : "";
  return absl::StrCat(rest, characters_.Rest());
}

}  // namespace weft
