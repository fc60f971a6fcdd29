#include "plan/spec/failure_domains.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr char kHowTo[] = "write hosts as a,n[1-8,12],gpu*";
constexpr size_t kMostDigits = 9;

struct Range {
  int64_t first = 0;
  int64_t last = 0;
  size_t digits = 0;  // with leading zeros; 0: without
};

// A part of a pattern: a character, *, ?, or a number in one of the ranges.
struct Token {
  enum class Kind { kCharacter, kAny, kOne, kNumber };
  Kind kind = Kind::kCharacter;
  char character = 0;
  std::vector<Range> ranges = {};
};
using Pattern = std::vector<Token>;

bool IsPlain(char c) {
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         absl::string_view("._-:").find(c) != absl::string_view::npos;
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

absl::StatusOr<Range> ParseRange(absl::string_view text) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  const absl::string_view last =
      text.find('-') == absl::string_view::npos ? ends.first : ends.second;
  Range range;
  if (!IsNumber(ends.first) || !IsNumber(last) || !absl::SimpleAtoi(ends.first, &range.first) ||
      !absl::SimpleAtoi(last, &range.last) || range.first > range.last) {
    return absl::InvalidArgumentError(absl::StrCat("[", text, "] is no range; ", kHowTo));
  }
  if (ends.first.size() > 1 && ends.first.front() == '0') range.digits = ends.first.size();
  return range;
}

absl::StatusOr<Pattern> ParsePattern(absl::string_view text) {
  Pattern pattern;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '*' || c == '?') {
      pattern.push_back({.kind = c == '*' ? Token::Kind::kAny : Token::Kind::kOne});
    } else if (c == '[') {
      const size_t close = text.find(']', i);
      if (close == absl::string_view::npos) {
        return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" leaves [ open; ", kHowTo));
      }
      Token number = {.kind = Token::Kind::kNumber};
      for (const absl::string_view each : absl::StrSplit(text.substr(i + 1, close - i - 1), ',')) {
        ASSIGN_OR_RETURN(const Range range, ParseRange(each));
        number.ranges.push_back(range);
      }
      pattern.push_back(std::move(number));
      i = close;
    } else if (IsPlain(c)) {
      pattern.push_back({.character = c});
    } else {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" names no host; ", kHowTo));
    }
  }
  return pattern;
}

// The hosts of a domain, taken apart at commas that are in no brackets.
absl::StatusOr<std::vector<Pattern>> ParsePatterns(absl::string_view text) {
  std::vector<Pattern> patterns;
  size_t begin = 0;
  bool inside = false;
  for (size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && (text[i] == '[' || text[i] == ']')) inside = text[i] == '[';
    if (i < text.size() && (text[i] != ',' || inside)) continue;
    const absl::string_view item = absl::StripAsciiWhitespace(text.substr(begin, i - begin));
    if (item.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" names no host; ", kHowTo));
    }
    ASSIGN_OR_RETURN(Pattern pattern, ParsePattern(item));
    patterns.push_back(std::move(pattern));
    begin = i + 1;
  }
  return patterns;
}

bool IsIn(absl::string_view digits, const std::vector<Range>& ranges) {
  int64_t number = 0;
  if (!IsNumber(digits) || !absl::SimpleAtoi(digits, &number)) return false;
  return std::any_of(ranges.begin(), ranges.end(), [&](const Range& range) {
    const bool is_padded = digits.size() > 1 && digits.front() == '0';
    const bool fits = range.digits > 0 ? digits.size() == range.digits : !is_padded;
    return fits && number >= range.first && number <= range.last;
  });
}

// Marks in `ends` where the token may end that begins at `begin`.
void Follow(const Token& token, absl::string_view host, size_t begin, std::vector<bool>& ends) {
  const size_t size = host.size();
  switch (token.kind) {
    case Token::Kind::kCharacter:
      if (begin < size && host[begin] == token.character) ends[begin + 1] = true;
      break;
    case Token::Kind::kOne:
      if (begin < size) ends[begin + 1] = true;
      break;
    case Token::Kind::kAny:
      for (size_t end = begin; end <= size; ++end) ends[end] = true;
      break;
    case Token::Kind::kNumber:
      for (size_t end = begin + 1; end <= size && end - begin <= kMostDigits; ++end) {
        if (IsIn(host.substr(begin, end - begin), token.ranges)) ends[end] = true;
      }
      break;
  }
}

// Goes through all ways at once, so that no pattern takes long.
bool Matches(const Pattern& pattern, absl::string_view host) {
  std::vector<bool> here(host.size() + 1);
  here[0] = true;
  for (const Token& token : pattern) {
    std::vector<bool> ends(host.size() + 1);
    for (size_t begin = 0; begin <= host.size(); ++begin) {
      if (here[begin]) Follow(token, host, begin, ends);
    }
    here = std::move(ends);
  }
  return here.back();
}

// Adds every name that the pattern means; false: it may mean any, or too many.
bool AddNames(const Pattern& pattern, std::vector<std::string>& names) {
  std::vector<std::string> begun = {""};
  for (const Token& token : pattern) {
    std::vector<std::string> next;
    if (token.kind == Token::Kind::kAny || token.kind == Token::Kind::kOne) return false;
    for (const std::string& name : begun) {
      if (token.kind == Token::Kind::kCharacter) next.push_back(name + token.character);
      for (const Range& range : token.ranges) {
        for (int64_t number = range.first; number <= range.last; ++number) {
          std::string digits = absl::StrCat(number);
          if (digits.size() < range.digits) digits.insert(0, range.digits - digits.size(), '0');
          next.push_back(name + digits);
          if (next.size() + names.size() > kMostNamedHosts) return false;
        }
      }
    }
    begun = std::move(next);
  }
  names.insert(names.end(), begun.begin(), begun.end());
  return true;
}

}  // namespace

bool IsDomainName(absl::string_view name) {
  return !name.empty() && name.front() != '-' &&
         std::all_of(name.begin(), name.end(), [](char c) { return IsPlain(c) && c != ':'; });
}

absl::Status CheckFailureDomains(const FailureDomains& domains) {
  for (const auto& [domain, hosts] : domains) {
    if (!IsDomainName(domain)) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", domain, "\" is no name of a domain; ", kDomainNames));
    }
    const absl::Status status = ParsePatterns(hosts).status();
    if (!status.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(domain, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> DomainOf(const FailureDomains& domains, absl::string_view host) {
  std::vector<std::string> names, found;
  for (const auto& [domain, hosts] : domains) {
    names.push_back(domain);
    const absl::StatusOr<std::vector<Pattern>> patterns = ParsePatterns(hosts);
    CHECK(patterns.ok());
    const bool has = std::any_of(patterns->begin(), patterns->end(),
                                 [&](const Pattern& each) { return Matches(each, host); });
    if (has) found.push_back(domain);
  }
  if (found.size() == 1) return found.front();
  if (!found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "host ", host, " is in ", absl::StrJoin(found, " and "), "; name it in one of them"));
  }
  return absl::NotFoundError(absl::StrCat("host ", host, " is in none of ",
                                          absl::StrJoin(names, ", "), "; name it in one of them"));
}

std::vector<std::pair<std::string, std::string>> HostsNamedIn(const FailureDomains& domains) {
  std::vector<std::pair<std::string, std::string>> all;
  for (const auto& [domain, hosts] : domains) {
    const absl::StatusOr<std::vector<Pattern>> patterns = ParsePatterns(hosts);
    CHECK(patterns.ok());
    std::vector<std::string> names;
    for (const Pattern& pattern : *patterns) {
      if (!AddNames(pattern, names)) return {};
    }
    if (names.size() + all.size() > kMostNamedHosts) return {};
    for (std::string& name : names) all.emplace_back(std::move(name), domain);
  }
  return all;
}

}  // namespace weft
