// Bpe: byte-pair encoding (Sennrich et al., arXiv:1508.07909) of one piece of text: its symbols,
// bytes or characters, are merged pair by pair, the lowest rank first and the leftmost of equals,
// as Hugging Face's tokenizers, tiktoken and sentencepiece do. Words that come again are looked up.
// Immutable; calls from any thread, each with a BpeScratch of its own, which serves one Bpe.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "data/tokenizer/pair_table.h"
#include "data/tokenizer/vocabulary.h"

namespace weft {

struct BpeRules {
  bool is_by_bytes = false;  // each byte of a piece is a symbol, as vocabulary texts are bytes
  bool takes_whole_words = false;  // ignore_merges: a piece that is a token is taken as it stands
  bool has_byte_fallback = false;  // an unknown character becomes <0xNN> of its bytes
  bool fuses_unknown = false;      // neighbouring unknown characters are one token
  int32_t unknown = kNoToken;      // kNoToken: an unknown character is dropped
  std::string prefix;              // of each character but the first of a piece
  std::string suffix;              // of the last character of a piece
  // Tokens from this id on are characters that sentencepiece merges although they are no tokens;
  // one that stays alone is unknown.
  int32_t first_ghost = kMostTokens;
};

// BpeScratch is what encoding writes into.
class BpeScratch {
 public:
  BpeScratch() : words_(kNumWords) {}

 private:
  friend class Bpe;
  static constexpr size_t kNumWords = size_t{1} << 16;
  static constexpr size_t kMostWordBytes = 24;
  static constexpr size_t kMostWordIds = 7;
  // A word that was encoded, in one line of the processor's cache. Its bytes are read eight at a
  // time, the last eight from its end, so that words of one size differ in them.
  struct alignas(64) Word {
    std::array<uint64_t, kMostWordBytes / 8> bytes = {};
    uint8_t size = 0;  // 0: none
    uint8_t num_ids = 0;
    std::array<int32_t, kMostWordIds> ids = {};
  };
  struct Symbol {
    int32_t id = 0;
    int32_t previous = 0, next = 0;  // -1: none
    int32_t rank = 0, merged = 0;    // of this and the next together; merged -1: they do not merge
  };
  struct Candidate {
    uint64_t order = 0;  // rank, then place
    int32_t merged = 0;
    bool operator<(const Candidate& other) const { return order > other.order; }
  };
  std::vector<Word> words_;
  std::vector<int32_t> ids_;
  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

class Bpe {
 public:
  // `vocabulary`: texts as pieces have them; what Find returns is what a piece may become.
  Bpe(Vocabulary vocabulary, PairTable merges, BpeRules rules);

  // Appends the ids of a piece. REQUIRES: fewer than 2^31 bytes.
  void Encode(absl::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;

 private:
  void EncodeCut(absl::string_view piece, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void EncodeWord(absl::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void EncodeNewWord(absl::string_view word, BpeScratch* scratch, std::vector<int32_t>* ids) const;
  void AppendSymbols(absl::string_view word, std::vector<int32_t>* symbols) const;
  bool AppendFallback(absl::string_view character, std::vector<int32_t>* symbols) const;
  void MergeShort(std::vector<int32_t>* symbols) const;
  void MergeLong(std::vector<int32_t>* symbols, BpeScratch* scratch) const;
  void Settle(std::vector<int32_t>* symbols) const;
  bool NeverMergesBeforeMark() const;

  Vocabulary vocabulary_;
  PairTable merges_;
  BpeRules rules_;
  std::array<int32_t, 256> byte_ids_;      // of each byte alone
  std::array<int32_t, 256> fallback_ids_;  // <0xNN>
  // No token has a U+2581 behind another character: a piece may be cut before each that follows
  // one.
  bool is_cut_before_mark_ = false;
};

}  // namespace weft
