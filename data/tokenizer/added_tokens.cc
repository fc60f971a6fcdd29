#include "data/tokenizer/added_tokens.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "data/tokenizer/categories.h"
#include "data/unicode.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

// Returns where the last character of text[0, end) begins. REQUIRES: end > 0.
size_t LastCharacter(absl::string_view text, size_t end) {
  size_t at = end - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

// Returns where the white space that ends at `end` begins, at `least` at the earliest.
size_t SpaceBegin(absl::string_view text, size_t least, size_t end) {
  while (end > least) {
    const size_t at = LastCharacter(text, end);
    if (at < least || !IsSpace(CharacterAt(text, at).code_point)) break;
    end = at;
  }
  return end;
}

// Returns where the white space that begins at `at` ends.
size_t SpaceEnd(absl::string_view text, size_t at) {
  while (at < text.size()) {
    const Character character = CharacterAt(text, at);
    if (!IsSpace(character.code_point)) break;
    at += static_cast<size_t>(character.bytes);
  }
  return at;
}

bool IsBesideWord(absl::string_view text, size_t begin, size_t end) {
  return (begin > 0 && IsWord(CharacterAt(text, LastCharacter(text, begin)).code_point)) ||
         (end < text.size() && IsWord(CharacterAt(text, end).code_point));
}

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    const auto first = static_cast<unsigned char>(token.content[0]);
    std::vector<size_t>& lengths = lengths_[first];
    const size_t length = token.content.size();
    const auto place = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
    if (place == lengths.end() || *place != length) lengths.insert(place, length);
    tokens_[token.content] = token;
    begins_[first] = true;
  }
}

AddedTokens::Found AddedTokens::FirstFrom(absl::string_view text, size_t at) const {
  if (tokens_.empty()) return {};
  for (; at < text.size(); ++at) {
    const auto first = static_cast<unsigned char>(text[at]);
    if (!begins_[first]) continue;
    for (const size_t length : lengths_[first]) {
      if (length > text.size() - at) continue;
      const auto found = tokens_.find(std::string(text.substr(at, length)));
      if (found != tokens_.end()) return {at, &found->second};
    }
  }
  return {};
}

absl::Status AddedTokens::Cut(absl::string_view text, Specials specials, const TakeToken& token,
                              const TakeRest& rest) const {
  size_t done = 0, match_end = 0;
  for (Found found = FirstFrom(text, 0); found.token != nullptr;
       found = FirstFrom(text, match_end)) {
    const AddedToken& of = *found.token;
    match_end = found.at + of.content.size();
    if (of.is_special && specials == Specials::kText) continue;
    if (of.is_single_word && IsBesideWord(text, found.at, match_end)) continue;
    if (of.is_special && specials == Specials::kRefuse) {
      return absl::InvalidArgumentError(absl::StrCat(
          "found the special token \"", Shortened(of.content), "\" at byte ", found.at,
          " of the text, where special tokens are refused; take it out, or have it as text or as "
          "the token (specials: text, specials: parse)"));
    }
    const size_t begin =
        of.takes_left_space ? SpaceBegin(text, std::min(done, found.at), found.at) : found.at;
    if (begin > done) RETURN_IF_ERROR(rest(done, begin));
    token(of.id);
    done = of.takes_right_space ? SpaceEnd(text, match_end) : match_end;
  }
  return done < text.size() ? rest(done, text.size()) : absl::OkStatus();
}

}  // namespace weft
