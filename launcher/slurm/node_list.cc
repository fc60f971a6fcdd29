#include "launcher/slurm/node_list.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plan/errors.h"

namespace weft {
namespace {

constexpr size_t kMostDigits = 9;

absl::Status WrongList(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(
      "node list ", text, ": ", why, "; it has to be as Slurm writes it, n[01-03,7],login"));
}

bool IsNumber(absl::string_view text) {
  return !text.empty() && text.size() <= kMostDigits &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

int NumberOf(absl::string_view digits) {
  int number = 0;
  for (const char c : digits) number = number * 10 + (c - '0');
  return number;
}

// "01-03,7" -> 01 02 03 7. A range is as wide as its first number.
absl::StatusOr<std::vector<std::string>> Ranges(absl::string_view list, absl::string_view text) {
  std::vector<std::string> numbers;
  for (const absl::string_view range : absl::StrSplit(list, ',')) {
    const size_t dash = range.find('-');
    const absl::string_view first = range.substr(0, dash);
    const absl::string_view last = dash == absl::string_view::npos ? first : range.substr(dash + 1);
    if (!IsNumber(first) || !IsNumber(last)) {
      return WrongList(text, absl::StrCat("\"", range, "\" is no range of numbers"));
    }
    const int begin = NumberOf(first);
    const int end = NumberOf(last);
    if (begin > end) return WrongList(text, absl::StrCat(range, " runs backwards"));
    if (end - begin >= kMostNodes) return WrongList(text, absl::StrCat(range, " is too long"));
    for (int number = begin; number <= end; ++number) {
      const std::string digits = absl::StrCat(number);
      const size_t zeros = first.size() > digits.size() ? first.size() - digits.size() : 0;
      numbers.push_back(std::string(zeros, '0') + digits);
    }
  }
  return numbers;
}

// One name of the list, with any number of brackets; the last one varies fastest.
absl::StatusOr<std::vector<std::string>> ExpandName(absl::string_view name,
                                                    absl::string_view text) {
  std::vector<std::string> names = {""};
  while (!name.empty()) {
    const size_t open = name.find('[');
    const absl::string_view plain = name.substr(0, open);
    if (absl::StrContains(plain, ']')) return WrongList(text, "a bracket closes that never opened");
    for (std::string& each : names) absl::StrAppend(&each, plain);
    if (open == absl::string_view::npos) break;
    const size_t close = name.find(']', open);
    if (close == absl::string_view::npos) return WrongList(text, "a bracket stays open");
    ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                     Ranges(name.substr(open + 1, close - open - 1), text));
    if (names.size() * numbers.size() > static_cast<size_t>(kMostNodes)) {
      return WrongList(text, absl::StrCat("has more than ", kMostNodes, " nodes"));
    }
    std::vector<std::string> longer;
    for (const std::string& each : names) {
      for (const std::string& number : numbers) longer.push_back(each + number);
    }
    names = std::move(longer);
    name.remove_prefix(close + 1);
  }
  return names;
}

// The commas that part names stand outside of brackets.
std::vector<absl::string_view> NamesOf(absl::string_view text) {
  std::vector<absl::string_view> names;
  size_t begin = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '[') inside = true;
    if (text[at] == ']') inside = false;
    if (text[at] != ',' || inside) continue;
    names.push_back(text.substr(begin, at - begin));
    begin = at + 1;
  }
  names.push_back(text.substr(begin));
  return names;
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view text) {
  std::vector<std::string> nodes;
  for (const absl::string_view name : NamesOf(text)) {
    if (name.empty()) return WrongList(text, "a name is empty");
    ASSIGN_OR_RETURN(const std::vector<std::string> some, ExpandName(name, text));
    nodes.insert(nodes.end(), some.begin(), some.end());
    if (nodes.size() > static_cast<size_t>(kMostNodes)) {
      return WrongList(text, absl::StrCat("has more than ", kMostNodes, " nodes"));
    }
  }
  return nodes;
}

absl::StatusOr<std::vector<int>> ExpandCounts(absl::string_view text) {
  std::vector<int> counts;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    const size_t times_at = part.find("(x");
    absl::string_view times = "1";
    if (times_at != absl::string_view::npos && absl::EndsWith(part, ")")) {
      times = part.substr(times_at + 2, part.size() - times_at - 3);
      part = part.substr(0, times_at);
    }
    if (!IsNumber(part) || !IsNumber(times) || NumberOf(times) > kMostNodes) {
      return absl::InvalidArgumentError(
          absl::StrCat("numbers of nodes ", text, ": are not as Slurm writes them, 4(x3),2"));
    }
    counts.insert(counts.end(), static_cast<size_t>(NumberOf(times)), NumberOf(part));
    if (counts.size() > static_cast<size_t>(kMostNodes)) {
      return absl::InvalidArgumentError(
          absl::StrCat("numbers of nodes ", text, ": are for more than ", kMostNodes, " nodes"));
    }
  }
  return counts;
}

}  // namespace weft
