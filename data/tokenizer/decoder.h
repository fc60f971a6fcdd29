// Decoder: how a tokenizer makes a text of tokens again, step by step, as the decoders of Hugging
// Face's tokenizers do. Pure.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/string_view.h"

namespace weft {

struct ByteLevelDecoding {};  // printable characters become their bytes
struct ReplaceDecoding {
  std::string what, by;
};
struct ByteFallbackDecoding {};  // a run of <0xNN> becomes a text, or a U+FFFD for each
struct FuseDecoding {};          // all tokens become one
struct StripDecoding {
  std::string character;
  int64_t most_left = 0, most_right = 0;
};
struct MetaspaceDecoding {
  std::string mark;
  bool drops_first = true;  // the space of the first mark of the text
};
struct WordPieceDecoding {
  std::string prefix;
  bool cleans = true;  // no space before punctuation and contractions
};
struct SuffixDecoding {  // of a word's end: it becomes a space, but for the last
  std::string suffix;
};
// sentencepiece's own: the mark before the text goes, of each token until one has more than it.
struct StartDecoding {
  std::string mark;
  bool is_once = false;  // the first mark alone goes
};

using DecoderStep =
    std::variant<StartDecoding, ByteLevelDecoding, ReplaceDecoding, ByteFallbackDecoding,
                 FuseDecoding, StripDecoding, MetaspaceDecoding, WordPieceDecoding, SuffixDecoding>;

// The text of tokens; without steps they stand with a space between them. `keeps_bytes`: a run of
// <0xNN> that is no UTF-8 becomes its bytes, for a text that is not over yet.
std::string Decoded(const std::vector<DecoderStep>& steps, std::vector<std::string> tokens,
                    bool keeps_bytes = false);

// `text` with a U+FFFD in place of what is no UTF-8: of each longest beginning of a character, and
// of each other byte, as Python's decode("utf-8", "replace").
std::string WithReplacements(absl::string_view text);

}  // namespace weft
