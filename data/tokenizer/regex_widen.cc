// The part of regex.h that rewrites expressions; it knows nothing of PCRE2's calls.
#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "data/tokenizer/newer_unicode.h"
#include "data/tokenizer/regex.h"
#include "data/tokenizer/scripts.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

// Members of a class, as they stand between [ and ].
constexpr char kSpaces[] =
    "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{"
    "3000}";
constexpr char kNoSpaces[] =
    "\\x00-\\x08\\x0e-\\x1f\\x21-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{"
    "200b}-"
    "\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}";

void AppendRange(char32_t first, char32_t last, std::string* members) {
  absl::StrAppendFormat(members, "\\x{%x}-\\x{%x}", first, last);
}

bool IsCategory(absl::string_view name) {
  constexpr absl::string_view kNames[] = {
      "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
      "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
      "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};
  return std::find(std::begin(kNames), std::end(kNames), name) != std::end(kNames);
}

// Names are alike whatever their capitals, and without spaces, - and _.
std::string Folded(absl::string_view name) {
  std::string folded;
  for (const char byte : name) {
    if (byte != ' ' && byte != '-' && byte != '_')
      folded.push_back(absl::ascii_tolower(static_cast<unsigned char>(byte)));
  }
  return folded;
}

// Null: no script has the name.
const NamedScript* FindScript(absl::string_view name) {
  for (const NamedScript& script : ScriptNames()) {
    if (Folded(script.name) == Folded(name)) return &script;
  }
  return nullptr;
}

// Members of a script. To PCRE2 a name alone means the characters that the script uses, and to the
// others those that are of it. One that it does not know is in no text that is not wide.
std::string ScriptMembers(const NamedScript& script, bool is_wide) {
  std::string members;
  if (!script.is_newer) absl::StrAppend(&members, "\\p{sc:", script.name, "}");
  for (const NewerScript& range : NewerScripts()) {
    const bool is_of_it = absl::string_view(range.script) == script.name;
    if (is_of_it && (is_wide || script.is_newer)) AppendRange(range.first, range.last, &members);
  }
  return members;
}

// Members of \p{name}. REQUIRES: a general category.
std::string Property(absl::string_view name, bool is_wide) {
  std::string members = absl::StrCat("\\p{", name, "}");
  if (!is_wide) return members;
  for (const CategoryRange& range : NewerCategories()) {
    const bool is_of_it = std::strncmp(range.category, name.data(), name.size()) == 0;
    if (is_of_it) AppendRange(range.first, range.last, &members);
  }
  return members;
}

std::string WordMembers(bool is_wide) {
  std::string members;
  for (const char* const name : {"L", "M", "Nd", "Nl", "Pc"}) {
    absl::StrAppend(&members, Property(name, is_wide));
  }
  for (const PointRange& range : WordBesides()) AppendRange(range.first, range.last, &members);
  return members;
}

class Widener {
 public:
  Widener(absl::string_view text, bool is_wide, RegexDialect dialect)
      : text_(text), is_wide_(is_wide), is_oniguruma_(dialect == RegexDialect::kOniguruma) {}

  absl::StatusOr<std::string> Widened() {
    while (at_ < text_.size()) {
      if (text_[at_] == '\\') {
        RETURN_IF_ERROR(TakeEscape());
      } else if (in_class_) {
        RETURN_IF_ERROR(TakeInClass());
      } else {
        RETURN_IF_ERROR(TakeOutside());
      }
    }
    return std::move(out_);
  }

 private:
  absl::Status Unknown(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(
        "found ", what, " at byte ", at_, " of the expression, which is not built in; known are ",
        "literals, classes without classes inside, \\p{L}, \\p{Han} and the like, \\s, \\w, \\d, "
        "groups, ",
        "alternatives, look-around and repetitions"));
  }

  absl::Status TakeOutside() {
    const char next = text_[at_];
    if (next == '(') {
      RETURN_IF_ERROR(CheckGroup());
      groups_.push_back(out_.size());
    }
    if (next == '{') {
      ASSIGN_OR_RETURN(const bool is_repetition, TakeRepetition());
      if (is_repetition) return absl::OkStatus();
    }
    if (next == ')' && !groups_.empty()) {
      atom_ = groups_.back();
      groups_.pop_back();
    } else if (!absl::StrContains("?*+", absl::string_view(&next, 1)) &&
               (next & '\xC0') != '\x80') {
      atom_ = absl::StrContains("(|^", absl::string_view(&next, 1)) ? kNowhere : out_.size();
    }
    if (next == '[') {
      in_class_ = true;
      out_.push_back(text_[at_++]);
      if (at_ < text_.size() && text_[at_] == '^') out_.push_back(text_[at_++]);
      if (at_ < text_.size() && text_[at_] == ']') {  // a member, where it stands first
        absl::StrAppend(&out_, "\\]");
        ++at_;
      }
      return absl::OkStatus();
    }
    out_.push_back(text_[at_++]);
    return absl::OkStatus();
  }

  // Groups that are known: plain, (?:, look-around, atomic, named, and (?i or (?x: m and s change
  // their meaning with the dialect. Oniguruma has an option without : reach over the alternatives
  // behind it, unless it begins the expression.
  absl::Status CheckGroup() {
    const absl::string_view rest = text_.substr(at_ + 1);
    if (absl::StartsWith(rest, "*")) return Unknown("a group (*");
    if (!absl::StartsWith(rest, "?")) return absl::OkStatus();
    for (const char* const known : {"?:", "?=", "?!", "?>", "?<", "?P<"}) {
      if (absl::StartsWith(rest, known)) return absl::OkStatus();
    }
    const size_t end = rest.find_first_not_of(is_oniguruma_ ? "ix-" : "isx-", 1);
    is_extended_ |= absl::StrContains(rest.substr(0, std::min(end, rest.size())), "x");
    const bool is_known = end != absl::string_view::npos && end > 1 &&
                          (rest[end] == ':' || (rest[end] == ')' && (!is_oniguruma_ || at_ == 0)));
    if (is_known) return absl::OkStatus();
    return Unknown(
        absl::StrCat("a group (", Shortened(rest.substr(0, std::min(end, rest.size()) + 1))));
  }

  // Takes what stands at a {, and returns true if that is a repetition. Of Oniguruma {,n} is {0,n},
  // and what follows a repetition repeats it, where PCRE2 has {n,m}+ and {n}? as one of its own
  // kind: what is repeated becomes a group.
  absl::StatusOr<bool> TakeRepetition() {
    const absl::string_view rest = text_.substr(at_ + 1);
    const size_t end = rest.find_first_not_of("0123456789,");
    if (end == absl::string_view::npos || rest[end] != '}' || end == 0) return false;
    const absl::string_view counts = rest.substr(0, end);
    if (counts == ",") return false;
    if (counts[0] == ',' && !is_oniguruma_) {
      return Unknown(absl::StrCat("the repetition ", Shortened(text_.substr(at_, end + 2))));
    }
    absl::StrAppend(&out_, counts[0] == ',' ? "{0" : "{", counts, "}");
    at_ += end + 2;
    if (!is_oniguruma_ || at_ >= text_.size()) return true;
    const bool is_exact = !absl::StrContains(counts, ",");
    const char next = text_[at_];
    const bool is_lazy = next == '?' && !is_exact;
    const bool is_repeated = next == '+' || next == '*' || next == '{' || next == '?';
    if (!is_repeated || is_lazy) return true;
    if (atom_ == kNowhere || is_extended_) {
      return Unknown(absl::StrCat("a repetition of the repetition {", Shortened(counts), "}"));
    }
    out_.insert(atom_, "(?:");
    out_.push_back(')');
    return true;
  }

  absl::Status TakeInClass() {
    if (text_[at_] == '[') return Unknown("a class inside a class");
    if (text_.substr(at_, 2) == "&&") return Unknown("an intersection of classes");
    if (text_[at_] == ']') in_class_ = false;
    out_.push_back(text_[at_++]);
    return absl::OkStatus();
  }

  // Members stand as they are in a class, and in a class of their own outside.
  void Put(absl::string_view members, bool is_negated) {
    if (in_class_) {
      absl::StrAppend(&out_, members);
    } else {
      absl::StrAppend(&out_, is_negated ? "[^" : "[", members, "]");
    }
  }

  absl::Status TakeEscape() {
    if (!in_class_) atom_ = out_.size();
    if (at_ + 1 >= text_.size()) return Unknown("a \\ at the end");
    const char kind = text_[at_ + 1];
    switch (kind) {
      case 'p':
      case 'P':
        return TakeProperty();
      case 's':
        Put(kSpaces, false);
        break;
      case 'S':
        Put(kNoSpaces, false);
        break;
      case 'd':
        Put(Property("Nd", is_wide_), false);
        break;
      case 'w':
        Put(WordMembers(is_wide_), false);
        break;
      case 'D':
      case 'W':
        if (in_class_) return Unknown(absl::StrCat("\\", std::string(1, kind), " in a class"));
        Put(kind == 'D' ? Property("Nd", is_wide_) : WordMembers(is_wide_), true);
        break;
      case 'b':
      case 'B':
      case 'h':
      case 'H':
      case 'R':
      case 'X':
      case 'K':
      case 'g':
      case 'k':
      case 'Q':
      case 'C':
      case 'E':
      case 'N':
      case 'v':
      case 'V':
        return Unknown(absl::StrCat("\\", std::string(1, kind)));
      default:
        if (kind >= '1' && kind <= '9') return Unknown("a reference to a group");
        absl::StrAppend(&out_, text_.substr(at_, 2));
    }
    at_ += 2;
    return absl::OkStatus();
  }

  absl::Status TakeProperty() {
    bool is_negated = text_[at_ + 1] == 'P';
    absl::string_view name = text_.substr(at_ + 2, 1);
    size_t end = at_ + 3;
    if (name == "{") {
      const size_t close = text_.find('}', at_);
      if (close == absl::string_view::npos) return Unknown("\\p{ without }");
      name = text_.substr(at_ + 3, close - at_ - 3);
      end = close + 1;
    }
    if (!name.empty() && name[0] == '^') {
      is_negated = !is_negated;
      name.remove_prefix(1);
    }
    if (name == "C" || name == "Cn") return Unknown("\\p{C}");
    const NamedScript* const script = FindScript(name);
    if (!IsCategory(name) && script == nullptr) {
      return Unknown(
          absl::StrCat("\\p{", Shortened(name), "}, which is no general category and no script,"));
    }
    if (is_negated && in_class_) return Unknown("a negated property in a class");
    Put(script != nullptr ? ScriptMembers(*script, is_wide_) : Property(name, is_wide_),
        is_negated);
    at_ = end;
    return absl::OkStatus();
  }

  const absl::string_view text_;
  const bool is_wide_;
  const bool is_oniguruma_;
  static constexpr size_t kNowhere = static_cast<size_t>(-1);

  std::string out_;
  size_t at_ = 0;
  bool in_class_ = false;
  bool is_extended_ = false;    // spaces may stand before a repetition
  size_t atom_ = kNowhere;      // in out_: what a repetition here repeats
  std::vector<size_t> groups_;  // in out_: those that are open
};

}  // namespace

absl::StatusOr<std::string> WidenedExpression(absl::string_view expression, bool is_wide,
                                              RegexDialect dialect) {
  return Widener(expression, is_wide, dialect).Widened();
}

}  // namespace weft
