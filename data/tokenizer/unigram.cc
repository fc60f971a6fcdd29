#include "data/tokenizer/unigram.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/unicode.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr double kUnknownPenalty = 10;  // below the least probable token

}  // namespace

Unigram::Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramRules rules)
    : vocabulary_(std::move(vocabulary)), scores_(std::move(scores)), rules_(rules) {
  double least = std::numeric_limits<double>::infinity();
  token_ends_.push_back(kNoToken);
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const absl::string_view text = vocabulary_.Text(id);
    if (!vocabulary_.Has(id) || scores_[static_cast<size_t>(id)] == kNoScore) continue;
    least = std::min(least, scores_[static_cast<size_t>(id)]);
    if (text.empty() || vocabulary_.Find(text) != id) continue;
    int32_t node = 0;
    for (const char byte : text) {
      const PairTable::Entry* const child = children_.Find(node, static_cast<unsigned char>(byte));
      const int32_t next = child ? child->id : static_cast<int32_t>(token_ends_.size());
      if (child == nullptr) {
        children_.Put(node, static_cast<unsigned char>(byte), 0, next);
        token_ends_.push_back(kNoToken);
      }
      node = next;
    }
    token_ends_[static_cast<size_t>(node)] = id;
  }
  unknown_score_ = least - kUnknownPenalty;
}

// The first of equals stays.
void Unigram::Relax(double score, size_t begin, int32_t id, Node* node) const {
  if (rules_.is_in_floats) score = static_cast<float>(score);
  if (node->begin >= 0 && score <= node->score) return;
  *node = {score, static_cast<int64_t>(begin), id};
}

absl::Status Unigram::FillPath(absl::string_view piece, std::vector<Node>* path) const {
  path->assign(piece.size() + 1, Node{});
  for (size_t at = 0; at < piece.size();) {
    const double before = (*path)[at].score;
    const auto character = static_cast<size_t>(CharacterAt(piece, at).bytes);
    bool is_known = false;
    int32_t node = 0;
    for (size_t end = at; end < piece.size(); ++end) {
      const PairTable::Entry* const child =
          children_.Find(node, static_cast<unsigned char>(piece[end]));
      if (child == nullptr) break;
      node = child->id;
      const int32_t id = token_ends_[static_cast<size_t>(node)];
      if (id == kNoToken) continue;
      Relax(before + scores_[static_cast<size_t>(id)], at, id, &(*path)[end + 1]);
      is_known = is_known || end + 1 - at == character;
    }
    if (!is_known) {
      if (rules_.unknown == kNoToken) {
        return absl::InvalidArgumentError(
            absl::StrCat("found a character that no token has at byte ", at,
                         " of a piece, and the tokenizer has no unknown token; expected a text of "
                         "its alphabet"));
      }
      Relax(before + unknown_score_, at, rules_.unknown, &(*path)[at + character]);
    }
    at += character;
  }
  return absl::OkStatus();
}

// A text that is no token becomes bytes, if all of them are tokens, or the unknown one.
void Unigram::AppendToken(absl::string_view text, std::vector<int32_t>* ids) const {
  const int32_t id = vocabulary_.Find(text);
  if (id != kNoToken) return ids->push_back(id);
  const size_t before = ids->size();
  for (const char byte : text) {
    if (!rules_.has_byte_fallback) break;
    const int32_t of_byte =
        vocabulary_.Find(absl::StrFormat("<0x%02X>", static_cast<unsigned char>(byte)));
    if (of_byte == kNoToken) break;
    ids->push_back(of_byte);
  }
  if (rules_.has_byte_fallback && ids->size() == before + text.size()) return;
  ids->resize(before);
  ids->push_back(rules_.unknown);
}

absl::Status Unigram::Encode(absl::string_view piece, std::vector<int32_t>* ids) const {
  std::vector<Node> path;
  RETURN_IF_ERROR(FillPath(piece, &path));
  std::vector<absl::string_view> tokens;  // from the last to the first
  size_t unknown_end = 0;                 // 0: none is being joined
  for (size_t end = piece.size(); end > 0;) {
    const Node& node = path[end];
    const auto begin = static_cast<size_t>(node.begin);
    if (rules_.fuses_unknown && node.id == rules_.unknown && unknown_end != 0) {
      tokens.back() = piece.substr(begin, unknown_end - begin);
    } else {
      tokens.push_back(piece.substr(begin, end - begin));
      unknown_end = rules_.fuses_unknown && node.id == rules_.unknown ? end : 0;
    }
    end = begin;
  }
  for (auto token = tokens.rbegin(); token != tokens.rend(); ++token) AppendToken(*token, ids);
  return absl::OkStatus();
}

void WordPiece::Encode(absl::string_view piece, std::vector<int32_t>* ids) const {
  const size_t before = ids->size();
  int64_t characters = 0;
  for (size_t at = 0; at < piece.size(); at += static_cast<size_t>(CharacterAt(piece, at).bytes)) {
    ++characters;
  }
  if (characters > most_characters_) return ids->push_back(unknown_);
  std::string text;
  for (size_t begin = 0; begin < piece.size();) {
    size_t end = piece.size();
    int32_t id = kNoToken;
    while (end > begin) {
      text = absl::StrCat(begin > 0 ? prefix_ : "", piece.substr(begin, end - begin));
      id = vocabulary_.Find(text);
      if (id != kNoToken) break;
      do --end;  // to where a character begins
      while (end > begin && (static_cast<unsigned char>(piece[end]) & 0xC0) == 0x80);
    }
    if (id == kNoToken) {
      ids->resize(before);
      return ids->push_back(unknown_);
    }
    ids->push_back(id);
    begin = end;
  }
}

}  // namespace weft
