#include "data/added_tokens.h"

#include <algorithm>
#include <functional>

#include "data/unicode.h"

namespace weft {
namespace {

// Returns where the white space that `text` ends with begins.
size_t TrailingSpaceBegin(absl::string_view text) {
  size_t begin = text.size();
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    if (!IsSpace(character.code_point)) {
      begin = text.size();
    } else if (begin == text.size()) {
      begin = at;
    }
    at += static_cast<size_t>(character.bytes);
  }
  return begin;
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

}  // namespace

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) {
  for (const AddedToken& token : tokens) {
    if (!token.content.empty()) (token.normalized ? normalized_ : as_given_).Add(token);
  }
}

void AddedTokens::Cut(absl::string_view text, const std::function<void(int32_t)>& token,
                      const std::function<void(absl::string_view)>& rest) const {
  as_given_.Cut(text, token, [&](absl::string_view piece) { normalized_.Cut(piece, token, rest); });
}

void AddedTokens::Index::Add(const AddedToken& token) {
  std::vector<size_t>& lengths = lengths_[static_cast<unsigned char>(token.content[0])];
  const size_t length = token.content.size();
  const auto place = std::lower_bound(lengths.begin(), lengths.end(), length, std::greater<>());
  if (place == lengths.end() || *place != length) lengths.insert(place, length);
  tokens_[token.content] = token;
}

AddedTokens::Found AddedTokens::Index::FirstFrom(absl::string_view text, size_t at) const {
  for (; at < text.size(); ++at) {
    for (const size_t length : lengths_[static_cast<unsigned char>(text[at])]) {
      if (length > text.size() - at) continue;
      const auto found = tokens_.find(std::string(text.substr(at, length)));
      if (found != tokens_.end()) return {at, &found->second};
    }
  }
  return {};
}

void AddedTokens::Index::Cut(absl::string_view text, const std::function<void(int32_t)>& token,
                             const std::function<void(absl::string_view)>& rest) const {
  size_t done = 0;
  Found found = FirstFrom(text, 0);
  while (found.token != nullptr) {
    const size_t match_end = found.at + found.token->content.size();
    size_t begin = found.at;
    if (found.token->lstrip && begin > done) {
      begin = done + TrailingSpaceBegin(text.substr(done, begin - done));
    }
    if (begin > done) rest(text.substr(done, begin - done));
    token(found.token->id);
    done = found.token->rstrip ? SpaceEnd(text, match_end) : match_end;
    found = FirstFrom(text, match_end);
  }
  if (done < text.size()) rest(text.substr(done));
}

}  // namespace weft
