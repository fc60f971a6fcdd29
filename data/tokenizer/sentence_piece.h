// The .model files of sentencepiece (its sentencepiece_model.proto, read by hand: libsentencepiece
// brings a protobuf of its own that must not stand beside weft's) become the parts of a Tokenizer.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/tokenizer.h"

namespace weft {

// A .model says, by the fields of ModelProto:
//   1 pieces {1 piece, 2 score, 3 type}   id = position
//   2 trainer_spec {3 model_type, 24 treat_whitespace_as_suffix, 35 byte_fallback}
//   3 normalizer_spec {2 precompiled_charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces,
//                      5 escape_whitespaces}
struct SentencePieceModel {
  enum class Type { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };
  struct Piece {
    std::string text;
    float score = 0;
    int64_t type = 1;
  };
  std::vector<Piece> pieces;
  int64_t model_type = 1;  // 1 unigram, 2 BPE, 3 word, 4 char
  bool has_suffix_marks = false, has_byte_fallback = false;
  std::string charsmap;
  bool adds_prefix = true, joins_spaces = true, marks_spaces = true;
};

// InvalidArgument: at which byte what is no message of protobuf.
absl::StatusOr<SentencePieceModel> ReadSentencePiece(absl::string_view bytes);

// No ends are put around texts, as sentencepiece does not. InvalidArgument: "path: what was found,
// what was expected".
absl::StatusOr<TokenizerParts> PartsOfSentencePiece(absl::string_view bytes,
                                                    const std::string& path);

}  // namespace weft
