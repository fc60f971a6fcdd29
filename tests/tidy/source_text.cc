#include "tests/tidy/source_text.h"

#include <algorithm>
#include <cctype>
#include <regex>
#include <sstream>

namespace weft {
namespace {

bool IsWordCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) || c == '_';
}

void Blank(std::string& text, size_t begin, size_t end) {
  for (size_t i = begin; i < std::min(end, text.size()); ++i) {
    if (text[i] != '\n') text[i] = ' ';
  }
}

// Past the end of a literal in plain quotes that opens at `at`.
size_t EndOfLiteral(const std::string& text, size_t at) {
  const char quote = text[at];
  size_t i = at + 1;
  while (i < text.size() && text[i] != quote && text[i] != '\n') i += text[i] == '\\' ? 2 : 1;
  return i + 1;
}

// Past the end of R"tag(...)tag" whose quote is at `at`.
size_t EndOfRawLiteral(const std::string& text, size_t at) {
  const size_t open = text.find('(', at);
  if (open == std::string::npos) return text.size();
  const std::string close = ")" + text.substr(at + 1, open - at - 1) + "\"";
  const size_t end = text.find(close, open);
  return end == std::string::npos ? text.size() : end + close.size();
}

enum class Scope { kNamespace, kType, kFunction, kOther };

bool StartsWithWord(const std::string& words, const std::string& word) {
  return words.rfind(word, 0) == 0 &&
         (words.size() == word.size() || !IsWordCharacter(words[word.size()]));
}

bool HasWord(const std::string& words, const std::string& word) {
  for (size_t at = words.find(word); at != std::string::npos; at = words.find(word, at + 1)) {
    const bool starts = at == 0 || !IsWordCharacter(words[at - 1]);
    const size_t end = at + word.size();
    if (starts && (end == words.size() || !IsWordCharacter(words[end]))) return true;
  }
  return false;
}

// The words outside of all parentheses, without default arguments and attributes' arguments.
std::string OutsideParentheses(const std::string& words) {
  std::string outside;
  int depth = 0;
  for (char c : words) {
    if (c == '(') ++depth;
    if (depth == 0) outside += c;
    if (c == ')') --depth;
  }
  return outside;
}

// Returns what a '{' opens, from the words since the last statement's end, at namespace or class
// scope.
Scope ScopeOf(const std::string& words, bool after_space) {
  if (HasWord(words, "namespace") || words == "extern") return Scope::kNamespace;
  const bool has_arguments = words.find('(') != std::string::npos;
  for (const char* word : {"class", "struct", "union", "enum"}) {
    if (StartsWithWord(words, word) || (HasWord(words, word) && !has_arguments)) {
      return Scope::kType;
    }
  }
  const bool is_value = OutsideParentheses(words).find(" = ") != std::string::npos;
  return has_arguments && after_space && !is_value ? Scope::kFunction : Scope::kOther;
}

std::string Trim(const std::string& text) {
  std::string trimmed;
  for (char c : text) {
    const bool space = std::isspace(static_cast<unsigned char>(c));
    if (!space) trimmed += c;
    if (space && !trimmed.empty() && trimmed.back() != ' ') trimmed += ' ';
  }
  while (!trimmed.empty() && trimmed.back() == ' ') trimmed.pop_back();
  return trimmed;
}

// "Link::Impl" of "class Link::Impl final : public A"; empty for what is no class.
std::string ClassName(const std::string& head) {
  static const auto* pattern = new std::regex(
      R"(^(?:template ?<.*> ?)?(?:class|struct) (?:alignas ?\([^)]*\) )?([\w:]*\w))");
  std::smatch match;
  if (!std::regex_search(head, match, *pattern)) return "";
  return match[1];
}

// "Place" of "enum class Place : int"; empty for what is no type, and for what is a part or a
// specialisation of another one ("Link::Impl", "Place<int>").
std::string TypeName(const std::string& head) {
  static const auto* pattern =
      new std::regex(R"(^(?:template ?<.*> ?)?(?:class|struct|union|enum(?: class)?) )"
                     R"((?:alignas ?\([^)]*\) )?(\w+)(?: final)?(?: ?:[^:].*)?$)");
  std::smatch match;
  if (!std::regex_search(head, match, *pattern)) return "";
  return match[1];
}

// Blanks preprocessor directives with their continuation lines: macros are not functions here.
std::string BlankDirectives(std::string text) {
  bool line_start = true;
  for (size_t i = 0; i < text.size(); ++i) {
    if (line_start && text[i] == '#') {
      size_t end = i;
      while (end < text.size() && (text[end] != '\n' || text[end - 1] == '\\')) ++end;
      Blank(text, i, end);
      i = end;
    }
    if (i >= text.size()) break;
    if (text[i] == '\n') {
      line_start = true;
    } else if (text[i] != ' ') {
      line_start = false;
    }
  }
  return text;
}

// Reads blanked text brace by brace and collects functions and classes.
class BodyReader {
 public:
  void Read(char c) {
    if (c == '\n') ++line_;
    if (c == '{') {
      Open();
    } else if (c == '}') {
      Close();
    } else if (!InFunction()) {
      Words(c);
    }
    previous_ = c;
  }

  std::vector<FunctionBody> functions;
  std::vector<ClassBody> classes;
  std::vector<DefinedType> types;  // of namespace weft

 private:
  struct Opened {
    Scope scope;
    std::string words_before;
    int head_line_before;
    size_t class_index = 0;  // one more than its place in `classes`; 0: no class
  };

  bool InFunction() const { return !open_.empty() && open_.back().scope >= Scope::kFunction; }

  bool InWeftItself() const {
    return open_.size() == 1 && Trim(open_[0].words_before) == "namespace weft";
  }

  void Open() {
    const bool outside = !InFunction();
    const std::string words = Trim(words_);
    const Scope scope = outside ? ScopeOf(words, previous_ == ' ') : Scope::kOther;
    if (scope == Scope::kFunction) functions.push_back({words, head_line_, 0});
    const std::string type = scope == Scope::kType && InWeftItself() ? TypeName(words) : "";
    if (!type.empty()) types.push_back({type, head_line_});
    open_.push_back({scope, words_, head_line_});
    const std::string name = scope == Scope::kType ? ClassName(words) : "";
    if (!name.empty()) {
      classes.push_back({name, head_line_, 0});
      open_.back().class_index = classes.size();
    }
    words_.clear();
    head_line_ = 0;
  }

  void Close() {
    if (open_.empty()) return;
    const Opened opened = open_.back();
    open_.pop_back();
    if (opened.scope == Scope::kFunction) functions.back().last_line = line_;
    if (opened.class_index > 0) classes[opened.class_index - 1].last_line = line_;
    words_.clear();
    head_line_ = 0;
    // A braced initialiser is part of the statement around it, a body ends one.
    if (opened.scope == Scope::kOther && !InFunction()) {
      words_ = opened.words_before;
      head_line_ = opened.head_line_before;
    }
  }

  void Words(char c) {
    if (c == ';') {
      words_.clear();
      head_line_ = 0;
      return;
    }
    if (c == ':' && (words_ == "public" || words_ == "private" || words_ == "protected")) {
      words_.clear();
      head_line_ = 0;
      return;
    }
    if (words_.empty() && std::isspace(static_cast<unsigned char>(c))) return;
    if (words_.empty()) head_line_ = line_;
    words_ += c;
  }

  std::vector<Opened> open_;
  std::string words_;
  int head_line_ = 0;
  int line_ = 1;
  char previous_ = '\n';
};

BodyReader ReadBodies(const std::string& text) {
  BodyReader reader;
  // `extern "C" {` keeps its braces but loses the quotes around the blanked language.
  std::string code = BlankDirectives(BlankCommentsAndLiterals(text));
  std::replace(code.begin(), code.end(), '"', ' ');
  for (char c : code) reader.Read(c);
  return reader;
}

}  // namespace

std::string At(const SourceFile& file, int line) {
  return file.path + ":" + std::to_string(line);
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string BlankCommentsAndLiterals(const std::string& text) {
  std::string code = text;
  for (size_t i = 0; i < code.size();) {
    size_t end = i + 1;
    if (text.compare(i, 2, "//") == 0) {
      end = std::min(text.find('\n', i), text.size());
      Blank(code, i, end);
    } else if (text.compare(i, 2, "/*") == 0) {
      const size_t close = text.find("*/", i + 2);
      end = close == std::string::npos ? text.size() : close + 2;
      Blank(code, i, end);
    } else if (text[i] == '"') {
      const bool raw = i > 0 && text[i - 1] == 'R';
      end = raw ? EndOfRawLiteral(text, i) : EndOfLiteral(text, i);
      Blank(code, i + 1, end - 1);
    } else if (text[i] == '\'' && (i == 0 || !IsWordCharacter(text[i - 1]))) {
      end = EndOfLiteral(text, i);
      Blank(code, i + 1, end - 1);
    }
    i = end;
  }
  return code;
}

std::vector<FunctionBody> Functions(const std::string& text) {
  return ReadBodies(text).functions;
}

std::vector<ClassBody> Classes(const std::string& text) {
  return ReadBodies(text).classes;
}

std::vector<DefinedType> TypesOfWeft(const std::string& text) {
  return ReadBodies(text).types;
}

}  // namespace weft
