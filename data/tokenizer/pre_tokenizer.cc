#include "data/tokenizer/pre_tokenizer.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/categories.h"
#include "data/tokenizer/normalizer.h"
#include "data/tokenizer/scripts.h"
#include "data/unicode.h"
#include "plan/errors.h"

namespace weft {

// Cutter puts the pieces of a scratch through a step.
class Cutter {
 public:
  explicit Cutter(PieceScratch* scratch) : scratch_(*scratch) {}

  void Start(absl::string_view text, bool is_first) {
    scratch_.texts_.clear();
    scratch_.pieces.assign(1, {text, is_first});
  }
  absl::Status Cut(const PreTokenizerStep& step) {
    const auto* const level = std::get_if<ByteLevelStep>(&step);
    const bool changes_nothing = level != nullptr && level->regex == nullptr &&
                                 !level->adds_prefix_space && !level->writes_characters;
    if (changes_nothing) return absl::OkStatus();
    scratch_.next_.clear();
    for (const TextPiece& piece : scratch_.pieces) {
      RETURN_IF_ERROR(
          std::visit([this, &piece](const auto& of) { return CutPiece(of, piece); }, step));
    }
    scratch_.pieces.swap(scratch_.next_);
    return absl::OkStatus();
  }

 private:
  void Put(const TextPiece& piece, size_t begin, size_t end) {
    if (begin >= end) return;
    scratch_.next_.push_back({piece.text.substr(begin, end - begin), piece.is_first && begin == 0});
  }
  // The piece with another text.
  TextPiece Changed(const TextPiece& piece, std::string text) {
    scratch_.texts_.push_back(std::move(text));
    return {scratch_.texts_.back(), piece.is_first};
  }

  // Takes matches and gaps from left to right and makes pieces of them.
  class Gatherer {
   public:
    Gatherer(Cutter* cutter, const TextPiece& piece, SplitBehavior behavior, bool is_inverted)
        : cutter_(cutter), piece_(piece), behavior_(behavior), is_inverted_(is_inverted) {}

    void Match(size_t begin, size_t end) {
      if (begin > done_) Take(done_, begin, is_inverted_);
      Take(begin, end, !is_inverted_);
      done_ = end;
    }
    void End() {
      if (done_ < piece_.text.size()) Take(done_, piece_.text.size(), is_inverted_);
      cutter_->Put(piece_, begin_, end_);
    }

   private:
    void Take(size_t begin, size_t end, bool is_match) {
      bool joins = false;
      switch (behavior_) {
        case SplitBehavior::kRemoved:
          if (is_match) return Flush(end);
          break;
        case SplitBehavior::kIsolated:
          break;
        case SplitBehavior::kContiguous:
          joins = has_any_ && is_match == was_match_;
          break;
        case SplitBehavior::kMergedWithPrevious:
          joins = has_any_ && is_match && !was_match_;
          break;
        case SplitBehavior::kMergedWithNext:
          joins = has_any_ && !is_match && was_match_;
          break;
      }
      if (!joins) Flush(begin);
      end_ = end;
      has_any_ = true;
      was_match_ = is_match;
    }
    void Flush(size_t next_begin) {
      cutter_->Put(piece_, begin_, end_);
      begin_ = end_ = next_begin;
    }

    Cutter* const cutter_;
    const TextPiece piece_;
    const SplitBehavior behavior_;
    const bool is_inverted_;
    size_t done_ = 0, begin_ = 0, end_ = 0;
    bool has_any_ = false, was_match_ = false;
  };

  // Words of a known expression, each of which begins where the one before it ends.
  absl::Status CutWords(const Regex& regex, const TextPiece& piece) {
    const AsciiWordRules rules = *regex.words();
    std::optional<bool> is_wide;
    for (size_t at = 0; at < piece.text.size();) {
      size_t end = AsciiWordEnd(rules, piece.text, at);
      if (end == 0) {
        if (!is_wide) is_wide = regex.NeedsWide(piece.text);
        ASSIGN_OR_RETURN(const Regex::Match match,
                         regex.Find(piece.text, at, *is_wide, &scratch_.regex));
        CHECK(match.is_found && match.begin == at && match.end > at);
        end = match.end;
      }
      Put(piece, at, end);
      at = end;
    }
    return absl::OkStatus();
  }

  absl::Status CutByRegex(const Regex& regex, const TextPiece& piece, Gatherer* gatherer) {
    const bool is_wide = regex.NeedsWide(piece.text);
    constexpr size_t kNowhere = static_cast<size_t>(-1);
    size_t last_end = kNowhere;
    for (size_t at = 0; at <= piece.text.size();) {
      ASSIGN_OR_RETURN(const Regex::Match match,
                       regex.Find(piece.text, at, is_wide, &scratch_.regex));
      if (!match.is_found) break;
      const bool is_empty = match.begin == match.end;
      if (!is_empty || match.begin != last_end) gatherer->Match(match.begin, match.end);
      last_end = at = match.end;
      if (!is_empty) continue;
      at += at < piece.text.size() ? static_cast<size_t>(CharacterAt(piece.text, at).bytes) : 1;
    }
    return absl::OkStatus();
  }

  static void CutByText(absl::string_view what, const TextPiece& piece, Gatherer* gatherer) {
    for (size_t at = piece.text.find(what); at != absl::string_view::npos && !what.empty();) {
      gatherer->Match(at, at + what.size());
      at = piece.text.find(what, at + what.size());
    }
  }

  absl::Status CutPiece(const SplitStep& step, const TextPiece& piece) {
    const bool is_isolated = step.behavior == SplitBehavior::kIsolated;
    if (is_isolated && step.regex != nullptr && step.regex->words()) {
      return CutWords(*step.regex, piece);
    }
    Gatherer gatherer(this, piece, step.behavior, step.is_inverted);
    if (step.regex != nullptr) {
      RETURN_IF_ERROR(CutByRegex(*step.regex, piece, &gatherer));
    } else {
      CutByText(step.text, piece, &gatherer);
    }
    gatherer.End();
    return absl::OkStatus();
  }

  absl::Status CutPiece(const ClassSplitStep& step, const TextPiece& piece) {
    Gatherer gatherer(this, piece, step.behavior, false);
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = CharacterAt(piece.text, at);
      const size_t end = at + static_cast<size_t>(character.bytes);
      const char32_t point = character.code_point;
      const bool is_in = step.of == CharacterClass::kNumber  ? IsIn(NumberPoints(), point)
                         : step.of == CharacterClass::kSpace ? IsSpace(point)
                                                             : IsIn(PunctuationPoints(), point);
      if (is_in) gatherer.Match(at, end);
      at = end;
    }
    gatherer.End();
    return absl::OkStatus();
  }

  // Rust's regex cuts \w+|[^\w\s]+ so: its \w has the joiners and the letters in circles.
  absl::Status CutPiece(const WordsStep&, const TextPiece& piece) {
    enum class Kind { kSpace, kWord, kSign };
    Kind last = Kind::kSpace;
    size_t begin = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = CharacterAt(piece.text, at);
      const Kind kind = IsSpace(character.code_point)  ? Kind::kSpace
                        : IsWord(character.code_point) ? Kind::kWord
                                                       : Kind::kSign;
      if (kind != last) {
        if (last != Kind::kSpace) Put(piece, begin, at);
        begin = at;
        last = kind;
      }
      at += static_cast<size_t>(character.bytes);
    }
    if (last != Kind::kSpace) Put(piece, begin, piece.text.size());
    return absl::OkStatus();
  }

  // Before its first script tokenizers drop what has none.
  absl::Status CutPiece(const ScriptsStep&, const TextPiece& piece) {
    int32_t last = 0;
    size_t begin = 0;
    for (size_t at = 0; at < piece.text.size();) {
      const Character character = CharacterAt(piece.text, at);
      const int32_t script = CutScriptOf(character.code_point);
      if (script != 0 && script != last) {
        if (last != 0) Put(piece, begin, at);
        begin = at;
        last = script;
      }
      at += static_cast<size_t>(character.bytes);
    }
    if (last != 0) Put(piece, begin, piece.text.size());
    return absl::OkStatus();
  }

  absl::Status CutPiece(const MetaspaceStep& step, const TextPiece& piece) {
    std::string text = ReplacedAll(piece.text, " ", step.mark);
    const bool is_prepended = step.prepend == MetaspaceStep::Prepend::kAlways ||
                              (step.prepend == MetaspaceStep::Prepend::kFirst && piece.is_first);
    if (is_prepended && !absl::StartsWith(text, step.mark)) text.insert(0, step.mark);
    const TextPiece changed = Changed(piece, std::move(text));
    if (!step.is_split) {
      scratch_.next_.push_back(changed);
      return absl::OkStatus();
    }
    Gatherer gatherer(this, changed, SplitBehavior::kMergedWithNext, false);
    CutByText(step.mark, changed, &gatherer);
    gatherer.End();
    return absl::OkStatus();
  }

  absl::Status CutPiece(const ByteLevelStep& step, const TextPiece& given) {
    const bool is_prefixed = step.adds_prefix_space && !absl::StartsWith(given.text, " ");
    const TextPiece piece = is_prefixed ? Changed(given, absl::StrCat(" ", given.text)) : given;
    const size_t before = scratch_.next_.size();
    if (step.regex == nullptr) {
      scratch_.next_.push_back(piece);
    } else {
      RETURN_IF_ERROR(CutWords(*step.regex, piece));
    }
    if (!step.writes_characters) return absl::OkStatus();
    for (size_t i = before; i < scratch_.next_.size(); ++i) {
      scratch_.next_[i] = Changed(scratch_.next_[i], CharactersOfBytes(scratch_.next_[i].text));
    }
    return absl::OkStatus();
  }

  PieceScratch& scratch_;
};

absl::Status PreTokenize(const std::vector<PreTokenizerStep>& steps, absl::string_view text,
                         bool is_first, PieceScratch* scratch) {
  Cutter cutter(scratch);
  cutter.Start(text, is_first);
  for (const PreTokenizerStep& step : steps) RETURN_IF_ERROR(cutter.Cut(step));
  return absl::OkStatus();
}

}  // namespace weft
