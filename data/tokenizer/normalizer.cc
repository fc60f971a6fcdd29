#include "data/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "data/tokenizer/byte_characters.h"
#include "data/tokenizer/categories.h"
#include "data/tokenizer/vocabulary.h"
#include "data/unicode.h"
#include "plan/errors.h"

namespace weft {
namespace {

// U+FDFA is 3 bytes and, under NFKD, 33.
constexpr size_t kMostGrowth = 16;

bool IsAscii(absl::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char byte) { return (byte & 0x80) == 0; });
}

// Puts each character of the text through `change`, which appends what it becomes.
template <typename Change>
void ChangeEach(std::string* text, const Change& change) {
  std::string changed;
  changed.reserve(text->size() + text->size() / 8);
  for (size_t at = 0; at < text->size();) {
    const Character character = CharacterAt(*text, at);
    change(character.code_point, &changed);
    at += static_cast<size_t>(character.bytes);
  }
  *text = std::move(changed);
}

// Characters below U+0300 are composed: no byte of theirs is above 0xCB.
bool IsComposed(absl::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char byte) { return static_cast<unsigned char>(byte) < 0xCC; });
}

absl::Status CannotNormalize(absl::string_view text, utf8proc_ssize_t error) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a text of ", text.size(), " bytes cannot be normalized (", error, ")"));
}

// The decomposed characters of a text, in its order.
absl::Status Decompose(absl::string_view text, utf8proc_option_t options,
                       std::vector<utf8proc_int32_t>* points) {
  std::array<utf8proc_int32_t, 32> parts = {};  // U+FDFA has 18, the most
  points->reserve(text.size() + 1);
  for (size_t at = 0; at < text.size();) {
    const Character character = CharacterAt(text, at);
    int boundary = 0;
    const utf8proc_ssize_t size =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point), parts.data(),
                                std::ssize(parts), options, &boundary);
    if (size < 0 || size > std::ssize(parts)) return CannotNormalize(text, size);
    points->insert(points->end(), parts.begin(), parts.begin() + size);
    at += static_cast<size_t>(character.bytes);
  }
  return absl::OkStatus();
}

// Sorts each run of marks by their combining classes (Unicode 16, 3.11, D109). utf8proc would swap
// neighbours, which takes the square of a run's length.
void OrderMarks(std::vector<utf8proc_int32_t>* points) {
  const auto class_of = [](utf8proc_int32_t point) {
    return utf8proc_get_property(point)->combining_class;
  };
  const auto precedes = [&](utf8proc_int32_t a, utf8proc_int32_t b) {
    return class_of(a) < class_of(b);
  };
  for (auto begin = points->begin(); begin != points->end();) {
    if (class_of(*begin) == 0) {
      ++begin;
      continue;
    }
    auto end = begin + 1;
    while (end != points->end() && class_of(*end) != 0) ++end;
    if (!std::is_sorted(begin, end, precedes)) std::stable_sort(begin, end, precedes);
    begin = end;
  }
}

// Appends the form of a text without inert characters.
absl::Status AppendForm(UnicodeForm form, absl::string_view text, std::string* out) {
  if (form == UnicodeForm::kNfc ? IsComposed(text) : IsAscii(text)) {
    absl::StrAppend(out, text);
    return absl::OkStatus();
  }
  constexpr int kOptions[] = {UTF8PROC_COMPOSE, UTF8PROC_DECOMPOSE,
                              UTF8PROC_COMPOSE | UTF8PROC_COMPAT,
                              UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT};
  const auto options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | kOptions[static_cast<int>(form)]);
  std::vector<utf8proc_int32_t> points;
  RETURN_IF_ERROR(Decompose(text, options, &points));
  OrderMarks(&points);
  const auto num_points = static_cast<utf8proc_ssize_t>(points.size());
  points.push_back(0);  // utf8proc ends the text that it writes in place
  const utf8proc_ssize_t size = utf8proc_reencode(points.data(), num_points, options);
  if (size < 0) return CannotNormalize(text, size);
  out->append(reinterpret_cast<const char*>(points.data()), static_cast<size_t>(size));
  return absl::OkStatus();
}

// An inert character parts what is before it from what is behind it: nothing moves across it or is
// composed with it.
absl::Status ToForm(UnicodeForm form, std::string* text) {
  if (form == UnicodeForm::kNfc ? IsComposed(*text) : IsAscii(*text)) return absl::OkStatus();
  std::string formed;
  const absl::string_view from = *text;
  size_t done = 0;
  for (size_t at = 0; at < from.size();) {
    const Character character = CharacterAt(from, at);
    const size_t end = at + static_cast<size_t>(character.bytes);
    if (character.code_point >= 0x7FD && IsIn(InertPoints(), character.code_point)) {
      RETURN_IF_ERROR(AppendForm(form, from.substr(done, at - done), &formed));
      absl::StrAppend(&formed, from.substr(at, end - at));
      done = end;
    }
    at = end;
  }
  RETURN_IF_ERROR(AppendForm(form, from.substr(done), &formed));
  *text = std::move(formed);
  return absl::OkStatus();
}

void Lower(std::string* text) {
  ChangeEach(text, [](char32_t point, std::string* out) {
    if (point == 0x130) {  // the only one that becomes two
      out->append("i\xCC\x87");
    } else {
      AppendCharacter(ToLower(point), out);
    }
  });
}

// REQUIRES: `points` has none of ASCII.
void Drop(absl::Span<const PointRange> points, std::string* text) {
  if (IsAscii(*text)) return;
  ChangeEach(text, [points](char32_t point, std::string* out) {
    if (!IsIn(points, point)) AppendCharacter(point, out);
  });
}

void Strip(const StripStep& step, std::string* text) {
  size_t begin = 0, end = text->size();
  while (step.is_left && begin < end) {
    const Character character = CharacterAt(*text, begin);
    if (!IsSpace(character.code_point)) break;
    begin += static_cast<size_t>(character.bytes);
  }
  while (step.is_right && end > begin) {
    size_t last = end - 1;
    while (last > begin && (static_cast<unsigned char>((*text)[last]) & 0xC0) == 0x80) --last;
    if (!IsSpace(CharacterAt(*text, last).code_point)) break;
    end = last;
  }
  *text = text->substr(begin, end - begin);
}

absl::Status Replace(const ReplaceStep& step, RegexScratch* scratch, std::string* text) {
  if (step.regex == nullptr) {
    *text = ReplacedAll(*text, step.text, step.by);
    return absl::OkStatus();
  }
  const bool is_wide = step.regex->NeedsWide(*text);
  std::string replaced;
  size_t done = 0;
  for (size_t at = 0; at <= text->size();) {
    ASSIGN_OR_RETURN(const Regex::Match match, step.regex->Find(*text, at, is_wide, scratch));
    if (!match.is_found) break;
    const bool is_empty = match.begin == match.end;
    absl::StrAppend(&replaced, absl::string_view(*text).substr(done, match.begin - done), step.by);
    done = match.end;
    at = match.end;
    if (is_empty) at += at < text->size() ? static_cast<size_t>(CharacterAt(*text, at).bytes) : 1;
  }
  absl::StrAppend(&replaced, absl::string_view(*text).substr(std::min(done, text->size())));
  *text = std::move(replaced);
  return absl::OkStatus();
}

bool IsChinese(char32_t point) {
  constexpr char32_t kRanges[][2] = {{0x4E00, 0x9FFF},   {0x3400, 0x4DBF},   {0x20000, 0x2A6DF},
                                     {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF},
                                     {0xF900, 0xFAFF},   {0x2F800, 0x2FA1F}};
  return std::any_of(std::begin(kRanges), std::end(kRanges), [point](const char32_t(&range)[2]) {
    return point >= range[0] && point <= range[1];
  });
}

absl::Status Bert(const BertStep& step, std::string* text) {
  if (step.cleans) {
    ChangeEach(text, [](char32_t point, std::string* out) {
      const bool is_kept_control = point == '\t' || point == '\n' || point == '\r';
      if (point == 0 || point == 0xFFFD || IsIn(BertControlPoints(), point)) return;
      AppendCharacter(is_kept_control || IsSpace(point) ? ' ' : point, out);
    });
  }
  if (step.spaces_chinese) {
    ChangeEach(text, [](char32_t point, std::string* out) {
      const bool is_apart = IsChinese(point);
      if (is_apart) out->push_back(' ');
      AppendCharacter(point, out);
      if (is_apart) out->push_back(' ');
    });
  }
  if (step.strips_accents) {
    RETURN_IF_ERROR(ToForm(UnicodeForm::kNfd, text));
    Drop(BertAccentPoints(), text);
  }
  if (step.lowers) Lower(text);
  return absl::OkStatus();
}

void Nmt(std::string* text) {
  ChangeEach(text, [](char32_t point, std::string* out) {
    const bool is_dropped = (point >= 1 && point <= 8) || point == 0xB ||
                            (point >= 0xE && point <= 0x1F) || point == 0x7F || point == 0x8F ||
                            point == 0x9F;
    const bool is_space = point == 0x9 || point == 0xA || point == 0xC || point == 0xD ||
                          point == 0x1680 || (point >= 0x200B && point <= 0x200F) ||
                          point == 0x2028 || point == 0x2029 || point == 0x2581 ||
                          point == 0xFEFF || point == 0xFFFD;
    if (!is_dropped) AppendCharacter(is_space ? U' ' : point, out);
  });
}

absl::Status CheckGrowth(const std::string& text, size_t most) {
  if (text.size() <= most) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat("the tokenizer's normalizer makes ", text.size(),
                                                   " bytes of a text, more than ", kMostGrowth,
                                                   " times what it had"));
}

// A charsmap says which bytes replace which: any.
absl::Status CheckMapped(const std::string& mapped, size_t most) {
  RETURN_IF_ERROR(CheckGrowth(mapped, most));
  if (IsUtf8(mapped)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "the tokenizer's precompiled charsmap makes bytes of the text that are no UTF-8, expected "
      "UTF-8; take the tokenizer as it was published");
}

// SentencePieceText is a text as sentencepiece's normalizer.cc makes it, unit by unit: a unit is
// what a key of the charsmap has become, a character that has none, or a text that is kept.
class SentencePieceText {
 public:
  // `most`: bytes that it may have; no more is taken.
  SentencePieceText(const SentencePieceStep& step, size_t most)
      : step_(step), most_(most), is_behind_space_(step.joins_spaces) {}

  bool is_full() const { return text_.size() > most_; }

  void Take(absl::string_view unit) {
    if (!has_begun_) {
      if (step_.joins_spaces && unit == " ") return;
      has_begun_ = true;
      if (step_.adds_prefix && !step_.has_suffix_marks) TakeSpace();
    }
    while (is_behind_space_ && absl::ConsumePrefix(&unit, " ")) {
    }
    if (unit.empty()) return;
    is_behind_space_ = step_.joins_spaces && unit.back() == ' ';
    for (size_t space = unit.find(' '); space != absl::string_view::npos; space = unit.find(' ')) {
      absl::StrAppend(&text_, unit.substr(0, space), Space());
      unit.remove_prefix(space + 1);
    }
    text_.append(unit.data(), unit.size());
  }

  void TakeMapped(absl::string_view from) {
    if (step_.charsmap == nullptr) return TakeWords(from);
    for (size_t at = 0; at < from.size() && !is_full();) {
      const Charsmap::Replaced key = step_.charsmap->Longest(from.substr(at));
      const auto bytes = static_cast<size_t>(CharacterAt(from, at).bytes);
      Take(key.bytes > 0 ? key.text : from.substr(at, bytes));
      at += key.bytes > 0 ? key.bytes : bytes;
    }
  }

  // A mark that the text itself ends with goes with the spaces: nobody can tell them apart then.
  std::string Text() && {
    const absl::string_view space = Space();
    while (step_.joins_spaces && absl::EndsWith(text_, space)) {
      text_.resize(text_.size() - space.size());
    }
    if (has_begun_ && step_.adds_prefix && step_.has_suffix_marks) TakeSpace();
    return std::move(text_);
  }

 private:
  // Characters that are no space may be taken together.
  void TakeWords(absl::string_view from) {
    for (size_t at = 0; at < from.size();) {
      const size_t end = from[at] == ' ' ? at + 1 : std::min(from.find(' ', at), from.size());
      Take(from.substr(at, end - at));
      at = end;
    }
  }
  absl::string_view Space() const { return step_.marks_spaces ? kSpaceMark : " "; }
  void TakeSpace() { absl::StrAppend(&text_, Space()); }

  const SentencePieceStep& step_;
  const size_t most_;
  bool is_behind_space_;
  bool has_begun_ = false;
  std::string text_;
};

absl::Status SentencePiece(const SentencePieceStep& step, size_t most, std::string* text) {
  const absl::string_view from = *text;
  SentencePieceText made(step, most);
  size_t done = 0;
  const auto take = [&](size_t begin, size_t end) {
    if (begin > done) made.Take(from.substr(done, begin - done));
    made.TakeMapped(from.substr(begin, end - begin));
    done = end;
    return absl::OkStatus();
  };
  if (step.kept == nullptr) {
    RETURN_IF_ERROR(take(0, from.size()));
  } else {
    RETURN_IF_ERROR(step.kept->Cut(
        from, Specials::kParse, [](int32_t) {}, take));
  }
  if (done < from.size()) made.Take(from.substr(done));
  std::string whole = std::move(made).Text();
  if (step.charsmap != nullptr) RETURN_IF_ERROR(CheckMapped(whole, most));
  *text = std::move(whole);
  return absl::OkStatus();
}

// The overloads below carry out one kind of step each.
class Applier {
 public:
  // `most`: bytes that the text may have.
  Applier(RegexScratch* scratch, size_t most, std::string* text)
      : scratch_(scratch), most_(most), text_(text) {}

  absl::Status operator()(UnicodeForm form) const { return ToForm(form, text_); }
  absl::Status operator()(const LowercaseStep&) const {
    Lower(text_);
    return absl::OkStatus();
  }
  absl::Status operator()(const StripStep& step) const {
    Strip(step, text_);
    return absl::OkStatus();
  }
  absl::Status operator()(const StripAccentsStep&) const {
    Drop(AccentPoints(), text_);
    return absl::OkStatus();
  }
  absl::Status operator()(const ReplaceStep& step) const { return Replace(step, scratch_, text_); }
  absl::Status operator()(const PrependStep& step) const {
    if (!text_->empty()) text_->insert(0, step.text);
    return absl::OkStatus();
  }
  absl::Status operator()(const BertStep& step) const { return Bert(step, text_); }
  absl::Status operator()(const NmtStep&) const {
    Nmt(text_);
    return absl::OkStatus();
  }
  absl::Status operator()(const ByteCharactersStep&) const {
    *text_ = CharactersOfBytes(*text_);
    return absl::OkStatus();
  }
  absl::Status operator()(const Charsmap& map) const {
    std::string mapped;
    map.AppendByGraphemes(*text_, most_, &mapped);
    RETURN_IF_ERROR(CheckMapped(mapped, most_));
    *text_ = std::move(mapped);
    return absl::OkStatus();
  }
  absl::Status operator()(const SentencePieceStep& step) const {
    return SentencePiece(step, most_, text_);
  }

 private:
  RegexScratch* const scratch_;
  const size_t most_;
  std::string* const text_;
};

// Tokenizers reckon which character of the given text each of the normalized one is of, and of a
// match that is replaced it is its last.
absl::StatusOr<bool> KeepsBeginning(const NormalizerStep& step, absl::string_view text,
                                    RegexScratch* scratch) {
  if (text.empty()) return true;
  const auto first_bytes = static_cast<size_t>(CharacterAt(text, 0).bytes);
  std::string first(text.substr(0, first_bytes));
  if (const auto* const replace = std::get_if<ReplaceStep>(&step)) {
    size_t match_bytes = 0;
    if (replace->regex != nullptr) {
      ASSIGN_OR_RETURN(const Regex::Match match,
                       replace->regex->Find(text, 0, replace->regex->NeedsWide(text), scratch));
      if (match.is_found && match.begin == 0) match_bytes = match.end;
    } else if (!replace->text.empty() && absl::StartsWith(text, replace->text)) {
      match_bytes = replace->text.size();
    }
    return match_bytes == 0 || (match_bytes == first_bytes && !replace->by.empty());
  }
  const bool may_drop =
      std::holds_alternative<StripStep>(step) || std::holds_alternative<StripAccentsStep>(step) ||
      std::holds_alternative<BertStep>(step) || std::holds_alternative<NmtStep>(step) ||
      std::holds_alternative<Charsmap>(step);
  if (!may_drop) return true;
  if (const auto* const strip = std::get_if<StripStep>(&step); strip && !strip->is_left)
    return true;
  RETURN_IF_ERROR(std::visit(Applier(scratch, size_t{1} << 16, &first), step));
  return !first.empty();
}

}  // namespace

std::string ReplacedAll(absl::string_view text, absl::string_view what, absl::string_view by) {
  if (what.empty()) return std::string(text);
  return absl::StrReplaceAll(text, {{what, by}});
}

absl::Status Normalize(const std::vector<NormalizerStep>& steps, RegexScratch* scratch,
                       std::string* text, bool* keeps_beginning) {
  const size_t most = text->size() * kMostGrowth + (size_t{1} << 16);
  if (keeps_beginning != nullptr) *keeps_beginning = true;
  for (const NormalizerStep& step : steps) {
    if (keeps_beginning != nullptr && *keeps_beginning) {
      ASSIGN_OR_RETURN(*keeps_beginning, KeepsBeginning(step, *text, scratch));
    }
    RETURN_IF_ERROR(std::visit(Applier(scratch, most, text), step));
    RETURN_IF_ERROR(CheckGrowth(*text, most));
  }
  return absl::OkStatus();
}

}  // namespace weft
