#include "data/bpe_tokenizer.h"

#include <array>
#include <queue>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "data/tokenizer_files.h"
#include "data/unicode.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr int32_t kNoByte = -1;

// The byte that each character of a file stands for, by code point.
std::array<int32_t, 324> ByteOfCharacter() {
  std::array<int32_t, 324> bytes = {};
  bytes.fill(kNoByte);
  size_t next = 256;
  for (int32_t byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173);
    bytes[itself ? static_cast<size_t>(byte) : next++] = byte;
  }
  return bytes;
}

// "Ġthe" -> " the"; a text that holds another character stands for its own bytes.
std::string BytesOf(const std::string& written) {
  static const std::array<int32_t, 324> kBytes = ByteOfCharacter();
  std::string bytes;
  for (size_t at = 0; at < written.size();) {
    const Character character = CharacterAt(written, at);
    if (character.code_point >= kBytes.size() || kBytes[character.code_point] == kNoByte) {
      return written;
    }
    bytes.push_back(static_cast<char>(kBytes[character.code_point]));
    at += static_cast<size_t>(character.bytes);
  }
  return bytes;
}

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

absl::StatusOr<BpeTokenizer> BpeTokenizer::Open(const std::string& path) {
  ASSIGN_OR_RETURN(TokenizerFiles files, ReadTokenizerFiles(path));
  BpeTokenizer tokenizer;
  RETURN_IF_ERROR(tokenizer.Build(files, path));
  tokenizer.added_ = AddedTokens(files.added);
  tokenizer.word_rule_ = files.words;
  tokenizer.before_ = std::move(files.before);
  tokenizer.after_ = std::move(files.after);
  tokenizer.ends_of_text_ = std::move(files.ends_of_text);
  return tokenizer;
}

void BpeTokenizer::Name(int32_t id, std::string bytes) {
  if (id >= std::ssize(bytes_)) bytes_.resize(static_cast<size_t>(id) + 1);
  bytes_[static_cast<size_t>(id)] = std::move(bytes);
}

absl::Status BpeTokenizer::Build(const TokenizerFiles& files, const std::string& path) {
  std::unordered_map<std::string, int32_t> ids;  // by bytes
  for (const auto& [written, id] : files.vocabulary) {
    Name(id, BytesOf(written));
    ids[BytesOf(written)] = id;
  }
  for (const AddedToken& token : files.added) Name(token.id, BytesOf(token.content));
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids.find(std::string(1, static_cast<char>(byte)));
    if (found == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found no token for byte ", byte, ", expected one for each byte"));
    }
    byte_ids_[byte] = found->second;
  }
  for (size_t rank = 0; rank < files.merges.size(); ++rank) {
    const std::vector<std::string> pair = absl::StrSplit(files.merges[rank], ' ');
    const auto left = ids.find(BytesOf(pair.front())), right = ids.find(BytesOf(pair.back()));
    const auto both = ids.find(BytesOf(pair.front()) + BytesOf(pair.back()));
    if (pair.size() != 2 || left == ids.end() || right == ids.end() || both == ids.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": found merge ", rank, " \"", files.merges[rank],
                       "\", expected two tokens of the vocabulary that make a third"));
    }
    merges_.emplace(PairKey(left->second, right->second),
                    Merge{static_cast<int32_t>(rank), both->second});
  }
  if (files.whole_words_first) whole_words_ = std::move(ids);
  return absl::OkStatus();
}

// Merges the pair of lowest rank, leftmost first, until none is left: a list of symbols and a queue
// of candidates, of which outdated ones are passed over.
void BpeTokenizer::EncodeWord(absl::string_view word, std::vector<int32_t>* ids) const {
  struct Symbol {
    int32_t id;
    size_t previous, next;
  };
  constexpr int32_t kGone = -1;
  if (!whole_words_.empty()) {
    const auto whole = whole_words_.find(std::string(word));
    if (whole != whole_words_.end()) return ids->push_back(whole->second);
  }
  const size_t none = word.size();
  std::vector<Symbol> symbols;
  for (size_t i = 0; i < word.size(); ++i) {
    symbols.push_back(
        {byte_ids_[static_cast<unsigned char>(word[i])], i == 0 ? none : i - 1, i + 1});
  }
  struct Candidate {
    int32_t rank;
    size_t at;
    uint64_t pair;
    bool operator<(const Candidate& other) const {  // the queue's top is its greatest
      return std::pair(rank, at) > std::pair(other.rank, other.at);
    }
  };
  std::priority_queue<Candidate> queue;
  const auto offer = [&](size_t left) {
    if (left == none || symbols[left].next == none) return;
    const uint64_t pair = PairKey(symbols[left].id, symbols[symbols[left].next].id);
    const auto merge = merges_.find(pair);
    if (merge != merges_.end()) queue.push({merge->second.rank, left, pair});
  };
  for (size_t i = 0; i < word.size(); ++i) offer(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.at];
    if (left.id == kGone || left.next == none) continue;
    Symbol& right = symbols[left.next];
    if (PairKey(left.id, right.id) != best.pair) continue;
    left.id = merges_.at(best.pair).id;
    right.id = kGone;
    left.next = right.next;
    if (left.next != none) symbols[left.next].previous = best.at;
    offer(left.previous);
    offer(best.at);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id != kGone) ids->push_back(symbol.id);
  }
}

void BpeTokenizer::EncodePiece(absl::string_view piece, std::vector<int32_t>* ids) const {
  while (!piece.empty()) {
    const size_t word = FirstWord(word_rule_, piece);
    EncodeWord(piece.substr(0, word), ids);
    piece.remove_prefix(word);
  }
}

std::vector<int32_t> BpeTokenizer::Encode(absl::string_view text) const {
  std::vector<int32_t> ids = before_;
  added_.Cut(
      text, [&ids](int32_t id) { ids.push_back(id); },
      [this, &ids](absl::string_view piece) { EncodePiece(piece, &ids); });
  ids.insert(ids.end(), after_.begin(), after_.end());
  return ids;
}

std::string BpeTokenizer::Decode(int32_t id) const {
  return id >= 0 && id < std::ssize(bytes_) ? bytes_[static_cast<size_t>(id)] : "";
}

}  // namespace weft
