// PreTokenizer: how a tokenizer cuts a text into the pieces that its model sees, step by step, as
// the pre-tokenizers of Hugging Face's tokenizers do. Immutable; calls from any thread, each with a
// PieceScratch of its own.
#pragma once
#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/vocabulary.h"

namespace weft {

// A behavior says what becomes of a match and of what lies between matches ("-" in a--b): Removed
// a·b, Isolated a·-·-·b, MergedWithPrevious a-·-·b, MergedWithNext a·-·-b, Contiguous a·--·b.
enum class SplitBehavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// The characters of a class match, one by one.
enum class CharacterClass { kNumber, kPunctuation, kSpace };

struct SplitStep {
  std::shared_ptr<const Regex> regex;  // null: `text`
  std::string text;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool is_inverted = false;  // what lies between matches counts as a match
};
struct ClassSplitStep {
  CharacterClass of = CharacterClass::kNumber;
  SplitBehavior behavior = SplitBehavior::kIsolated;
};
struct WordsStep {};  // runs of IsWord, runs of what is neither that nor space; space is removed
struct ScriptsStep {
};  // a piece a script; spaces, and unknown characters, belong to the one before
struct MetaspaceStep {
  enum class Prepend { kAlways, kFirst, kNever };
  std::string mark = kSpaceMark;
  Prepend prepend = Prepend::kAlways;
  bool is_split = true;
};
// GPT-2's byte level: a space before the piece, its own expression, bytes as characters.
struct ByteLevelStep {
  bool adds_prefix_space = false;
  std::shared_ptr<const Regex> regex;  // null: use_regex is false
  bool writes_characters = true;       // false: pieces stay bytes, for a model that takes bytes
};

using PreTokenizerStep =
    std::variant<SplitStep, ClassSplitStep, WordsStep, ScriptsStep, MetaspaceStep, ByteLevelStep>;

struct TextPiece {
  absl::string_view text;
  bool is_first = false;  // it begins where the text does
};

// PieceScratch is what cutting writes into; the texts of pieces lie in it until the next cutting.
class PieceScratch {
 public:
  std::vector<TextPiece> pieces;
  RegexScratch regex;

 private:
  friend class Cutter;
  std::vector<TextPiece> next_;
  std::deque<std::string> texts_;
};

// Fills scratch->pieces, none of them empty, from `text`. `is_first`: it begins what was given to
// be encoded. ResourceExhausted as Regex::Find.
absl::Status PreTokenize(const std::vector<PreTokenizerStep>& steps, absl::string_view text,
                         bool is_first, PieceScratch* scratch);

}  // namespace weft
