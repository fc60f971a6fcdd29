// Unigram: the most probable cut of a text into tokens, each with a log-probability (Kudo,
// arXiv:1804.10959), found by Viterbi's algorithm as sentencepiece and Hugging Face's tokenizers
// do. WordPiece: the longest token first, from the left (Devlin et al., arXiv:1810.04805). Both are
// immutable; calls from any thread.
#pragma once
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/pair_table.h"
#include "data/tokenizer/vocabulary.h"

namespace weft {

// The score of a token that no text becomes: one of a byte, of control.
inline constexpr double kNoScore = -std::numeric_limits<double>::infinity();

struct UnigramRules {
  int32_t unknown = kNoToken;
  bool has_byte_fallback = false;
  bool fuses_unknown = true;
  bool is_in_floats = false;  // sentencepiece sums scores as floats, tokenizers as doubles
};

class Unigram {
 public:
  // `scores`: by id, as many as the vocabulary has; an id that its Find never returns is not used.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, UnigramRules rules);

  // Appends the ids of a piece. InvalidArgument: a character that no token has, and no unknown one.
  absl::Status Encode(absl::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct Node {
    double score = 0;
    int64_t begin = -1;  // of the token that ends here; -1: none does
    int32_t id = kNoToken;
  };
  void Relax(double score, size_t begin, int32_t id, Node* node) const;
  absl::Status FillPath(absl::string_view piece, std::vector<Node>* path) const;
  void AppendToken(absl::string_view text, std::vector<int32_t>* ids) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  UnigramRules rules_;
  double unknown_score_ = 0;
  PairTable children_;               // (node, byte) -> node; node 0 is the root
  std::vector<int32_t> token_ends_;  // by node; kNoToken: none
};

class WordPiece {
 public:
  WordPiece(Vocabulary vocabulary, std::string prefix, int64_t most_characters, int32_t unknown)
      : vocabulary_(std::move(vocabulary)),
        prefix_(std::move(prefix)),
        most_characters_(most_characters),
        unknown_(unknown) {}

  void Encode(absl::string_view piece, std::vector<int32_t>* ids) const;

 private:
  Vocabulary vocabulary_;
  std::string prefix_;  // of each token but a word's first
  int64_t most_characters_ = 100;
  int32_t unknown_ = kNoToken;
};

}  // namespace weft
