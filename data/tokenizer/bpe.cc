#include "data/tokenizer/bpe.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/unicode.h"

namespace weft {
namespace {

// Its size is given: sanitizers let no constant ask for it.
constexpr absl::string_view kWordMark(kSpaceMark, sizeof kSpaceMark - 1);
// Up to so many symbols are merged by looking through all of them for each merge.
constexpr size_t kShort = 40;
template <typename Number>
uint64_t Load(const char* from) {
  Number number = 0;
  std::memcpy(&number, from, sizeof(number));
  return number;
}

// Numbers by which words of one size, at most 24, differ. REQUIRES: not empty.
std::array<uint64_t, 3> BytesOfWord(absl::string_view word) {
  const char* const from = word.data();
  const size_t size = word.size();
  if (size > 16) {
    return {Load<uint64_t>(from), Load<uint64_t>(from + 8), Load<uint64_t>(from + size - 8)};
  }
  if (size >= 8) return {Load<uint64_t>(from), Load<uint64_t>(from + size - 8), 0};
  if (size >= 4) return {Load<uint32_t>(from) | Load<uint32_t>(from + size - 4) << 32, 0, 0};
  return {Load<uint8_t>(from) | Load<uint8_t>(from + size / 2) << 8 |
              Load<uint8_t>(from + size - 1) << 16,
          0, 0};
}

constexpr int32_t kNoRank = std::numeric_limits<int32_t>::max();

}  // namespace

Bpe::Bpe(Vocabulary vocabulary, PairTable merges, BpeRules rules)
    : vocabulary_(std::move(vocabulary)), merges_(std::move(merges)), rules_(std::move(rules)) {
  for (size_t byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    byte_ids_[byte] = vocabulary_.Find(absl::string_view(&text, 1));
    fallback_ids_[byte] = vocabulary_.Find(absl::StrFormat("<0x%02X>", byte));
  }
  is_cut_before_mark_ = !rules_.is_by_bytes && !rules_.takes_whole_words && rules_.prefix.empty() &&
                        rules_.suffix.empty() && NeverMergesBeforeMark();
}

bool Bpe::NeverMergesBeforeMark() const {
  if (vocabulary_.Find(kWordMark) == kNoToken) return false;
  bool never = true;
  merges_.ForEach([&](const PairTable::Entry& merge) {
    const absl::string_view left = vocabulary_.Text(merge.left);
    const absl::string_view right = vocabulary_.Text(merge.right);
    if (!absl::EndsWith(left, kWordMark) && absl::StartsWith(right, kWordMark)) never = false;
  });
  return never;
}

void Bpe::Encode(absl::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (is_cut_before_mark_) {
    EncodeCut(piece, scratch, ids);
  } else {
    EncodeWord(piece, scratch, ids);
  }
}

// A word is marks and what follows them.
void Bpe::EncodeCut(absl::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  size_t begin = 0;
  for (size_t at = piece.find(kWordMark, 0); at != absl::string_view::npos;) {
    const size_t behind = at + kWordMark.size();
    const bool follows_mark = at >= begin + kWordMark.size() &&
                              piece.substr(at - kWordMark.size(), kWordMark.size()) == kWordMark;
    if (at > begin && !follows_mark) {
      EncodeWord(piece.substr(begin, at - begin), scratch, ids);
      begin = at;
    }
    at = piece.find(kWordMark, behind);
  }
  if (begin < piece.size()) EncodeWord(piece.substr(begin), scratch, ids);
}

void Bpe::EncodeWord(absl::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const {
  if (word.size() > BpeScratch::kMostWordBytes) return EncodeNewWord(word, scratch, ids);
  const std::array<uint64_t, BpeScratch::kMostWordBytes / 8> bytes = BytesOfWord(word);
  uint64_t hash = (bytes[0] ^ word.size() << 56) * 0x9E3779B97F4A7C15U;
  hash ^= bytes[1] * 0xBF58476D1CE4E5B9U ^ bytes[2] * 0x94D049BB133111EBU;
  hash = (hash ^ hash >> 32) * 0x9E3779B97F4A7C15U;
  BpeScratch::Word& known = scratch->words_[hash >> 48];
  if (known.size == word.size() && known.bytes == bytes) {
    if (known.num_ids == 1) return ids->push_back(known.ids[0]);
    ids->insert(ids->end(), known.ids.data(), known.ids.data() + known.num_ids);
    return;
  }
  const size_t before = ids->size();
  EncodeNewWord(word, scratch, ids);
  const size_t num_ids = ids->size() - before;
  if (num_ids > BpeScratch::kMostWordIds) return;
  known.bytes = bytes;
  known.size = static_cast<uint8_t>(word.size());
  known.num_ids = static_cast<uint8_t>(num_ids);
  std::copy_n(ids->data() + before, num_ids, known.ids.data());
}

void Bpe::EncodeNewWord(absl::string_view word, BpeScratch* scratch,
                        std::vector<int32_t>* ids) const {
  if (rules_.takes_whole_words) {
    const int32_t whole = vocabulary_.Find(word);
    if (whole != kNoToken) return ids->push_back(whole);
  }
  std::vector<int32_t>& symbols = scratch->ids_;
  symbols.clear();
  AppendSymbols(word, &symbols);
  if (symbols.size() <= kShort) {
    MergeShort(&symbols);
  } else {
    MergeLong(&symbols, scratch);
  }
  if (rules_.first_ghost != kMostTokens) Settle(&symbols);
  ids->insert(ids->end(), symbols.begin(), symbols.end());
}

bool Bpe::AppendFallback(absl::string_view character, std::vector<int32_t>* symbols) const {
  if (!rules_.has_byte_fallback) return false;
  for (const char byte : character) {
    if (fallback_ids_[static_cast<unsigned char>(byte)] == kNoToken) return false;
  }
  for (const char byte : character) {
    symbols->push_back(fallback_ids_[static_cast<unsigned char>(byte)]);
  }
  return true;
}

// An unknown token waits for the next known character, also behind bytes that come after it: so
// tokenizers orders them.
void Bpe::AppendSymbols(absl::string_view word, std::vector<int32_t>* symbols) const {
  bool is_unknown_due = false;
  for (size_t at = 0; at < word.size();) {
    const auto first = static_cast<unsigned char>(word[at]);
    const size_t size =
        rules_.is_by_bytes
            ? 1
            : std::min(word.size() - at,
                       static_cast<size_t>(std::max<int64_t>(1, CharacterBytes(first))));
    const bool is_decorated =
        (at > 0 && !rules_.prefix.empty()) || (at + size == word.size() && !rules_.suffix.empty());
    int32_t id = kNoToken;
    std::string decorated;
    absl::string_view character = word.substr(at, size);
    if (is_decorated) {
      decorated = absl::StrCat(at > 0 ? rules_.prefix : "", character,
                               at + size == word.size() ? rules_.suffix : "");
      character = decorated;
    }
    id = size == 1 && !is_decorated ? byte_ids_[first] : vocabulary_.Find(character);
    at += size;
    if (id != kNoToken) {
      if (is_unknown_due) symbols->push_back(rules_.unknown);
      is_unknown_due = false;
      symbols->push_back(id);
    } else if (!AppendFallback(character, symbols) && rules_.unknown != kNoToken) {
      if (is_unknown_due && !rules_.fuses_unknown) symbols->push_back(rules_.unknown);
      is_unknown_due = true;
    }
  }
  if (is_unknown_due) symbols->push_back(rules_.unknown);
}

void Bpe::MergeShort(std::vector<int32_t>* symbols) const {
  std::array<int32_t, kShort> ranks = {}, merged = {};
  std::vector<int32_t>& ids = *symbols;
  size_t size = ids.size();
  const auto look = [&](size_t at) {
    const PairTable::Entry* const merge = merges_.Find(ids[at], ids[at + 1]);
    ranks[at] = merge ? merge->rank : kNoRank;
    merged[at] = merge ? merge->id : kNoToken;
  };
  for (size_t i = 0; i + 1 < size; ++i) look(i);
  while (size > 1) {
    const size_t best = static_cast<size_t>(
        std::min_element(ranks.begin(), ranks.begin() + static_cast<ptrdiff_t>(size - 1)) -
        ranks.begin());
    if (merged[best] == kNoToken) break;
    ids[best] = merged[best];
    for (size_t i = best + 1; i + 1 < size; ++i) {
      ids[i] = ids[i + 1];
      ranks[i] = ranks[i + 1];
      merged[i] = merged[i + 1];
    }
    --size;
    if (best + 1 < size) look(best);
    if (best > 0) look(best - 1);
  }
  ids.resize(size);
}

void Bpe::MergeLong(std::vector<int32_t>* ids, BpeScratch* scratch) const {
  std::vector<BpeScratch::Symbol>& symbols = scratch->symbols_;
  std::vector<BpeScratch::Candidate>& heap = scratch->heap_;
  const auto num_symbols = static_cast<int32_t>(ids->size());
  symbols.resize(ids->size());
  heap.clear();
  const auto look = [&](int32_t at) {
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(at)];
    left.merged = kNoToken;
    if (left.next < 0) return false;
    const PairTable::Entry* const merge =
        merges_.Find(left.id, symbols[static_cast<size_t>(left.next)].id);
    if (merge == nullptr) return false;
    left.rank = merge->rank;
    left.merged = merge->id;
    heap.push_back({uint64_t{static_cast<uint32_t>(merge->rank)} << 32 | static_cast<uint32_t>(at),
                    merge->id});
    return true;
  };
  for (int32_t i = 0; i < num_symbols; ++i) {
    symbols[static_cast<size_t>(i)] = {(*ids)[static_cast<size_t>(i)], i - 1,
                                       i + 1 < num_symbols ? i + 1 : -1, 0, kNoToken};
  }
  for (int32_t i = 0; i < num_symbols; ++i) look(i);
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const BpeScratch::Candidate best = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(best.order & 0xFFFFFFFFU);
    BpeScratch::Symbol& left = symbols[static_cast<size_t>(at)];
    const bool stands = left.id != kNoToken && left.merged == best.merged &&
                        static_cast<uint32_t>(left.rank) == best.order >> 32;
    if (!stands) continue;  // one of the two has merged with another since
    BpeScratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = best.merged;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    if (look(at)) std::push_heap(heap.begin(), heap.end());
    if (left.previous >= 0 && look(left.previous)) std::push_heap(heap.begin(), heap.end());
  }
  ids->clear();
  for (const BpeScratch::Symbol& symbol : symbols) {
    if (symbol.id != kNoToken) ids->push_back(symbol.id);
  }
}

// Characters that are no tokens become bytes or unknown ones.
void Bpe::Settle(std::vector<int32_t>* symbols) const {
  std::vector<int32_t> settled;
  for (const int32_t id : *symbols) {
    const bool is_ghost = id >= rules_.first_ghost;
    if (is_ghost && AppendFallback(vocabulary_.Text(id), &settled)) continue;
    const int32_t token = is_ghost ? rules_.unknown : id;
    const bool joins = token == rules_.unknown && rules_.fuses_unknown && !settled.empty() &&
                       settled.back() == token;
    if (!joins && token != kNoToken) settled.push_back(token);
  }
  *symbols = std::move(settled);
}

}  // namespace weft
