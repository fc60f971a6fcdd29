#include "data/tokenizer/added_tokens.h"

#include <algorithm>

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

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens) : nodes_(1) {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    begins_[static_cast<unsigned char>(token.content[0])] = true;
    int32_t node = 0;
    for (const char of : token.content) {
      const auto byte = static_cast<unsigned char>(of);
      const PairTable::Entry* const child = children_.Find(node, byte);
      if (child == nullptr) {
        const auto made = static_cast<int32_t>(nodes_.size());
        children_.Put(node, byte, 0, made);
        nodes_.push_back({.num_bytes = nodes_[static_cast<size_t>(node)].num_bytes + 1});
        node = made;
      } else {
        node = child->id;
      }
    }
    nodes_[static_cast<size_t>(node)].token = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
  }
  PutFallbacks();
}

// Shorter nodes come first: a node's fallback is shorter than it.
void AddedTokens::PutFallbacks() {
  std::vector<PairTable::Entry> edges;
  children_.ForEach([&](const PairTable::Entry& edge) { edges.push_back(edge); });
  std::sort(edges.begin(), edges.end(), [this](const auto& a, const auto& b) {
    return nodes_[static_cast<size_t>(a.left)].num_bytes <
           nodes_[static_cast<size_t>(b.left)].num_bytes;
  });
  for (const PairTable::Entry& edge : edges) {
    Node& node = nodes_[static_cast<size_t>(edge.id)];
    if (edge.left != 0) {
      node.fallback = Next(nodes_[static_cast<size_t>(edge.left)].fallback,
                           static_cast<unsigned char>(edge.right));
    }
    if (node.token < 0) node.token = nodes_[static_cast<size_t>(node.fallback)].token;
  }
}

int32_t AddedTokens::Next(int32_t node, unsigned char byte) const {
  while (true) {
    const PairTable::Entry* const child = children_.Find(node, byte);
    if (child != nullptr) return child->id;
    if (node == 0) return 0;
    node = nodes_[static_cast<size_t>(node)].fallback;
  }
}

// Each byte is read once, however many tokens there are and however long: what was read of any that
// may still come is the node. The one that is found stays until nothing that began before it, or
// where it began, goes on.
AddedTokens::Found AddedTokens::FirstFrom(absl::string_view text, size_t at) const {
  Found found;
  if (tokens_.empty()) return found;
  int32_t node = 0;
  for (; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (node == 0 && !begins_[byte]) {
      if (found.token != nullptr) break;
      continue;
    }
    node = Next(node, byte);
    const Node& read = nodes_[static_cast<size_t>(node)];
    if (found.token != nullptr && at + 1 - read.num_bytes > found.at) break;
    if (read.token < 0) continue;
    const AddedToken& token = tokens_[static_cast<size_t>(read.token)];
    const size_t begin = at + 1 - token.content.size();
    if (found.token == nullptr || begin <= found.at) found = {begin, &token};
  }
  return found;
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
