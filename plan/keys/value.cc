#include "plan/keys/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {

std::string Shown(absl::string_view text) {
  constexpr size_t kMostBytes = 60;
  if (text.size() <= kMostBytes) return absl::StrCat(text);
  size_t end = kMostBytes - 3;
  const auto continues = [&](size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;  // a character's second byte...
  };
  while (end > 0 && continues(end)) --end;
  return absl::StrCat(text.substr(0, end), "...");
}

std::optional<double> ParseNumber(absl::string_view text) {
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  if (text.empty() || text.front() == 'i' || text.front() == 'n') return std::nullopt;
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<int64_t> ParseWholeNumber(absl::string_view text) {
  int64_t whole = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, whole);
  if (error == std::errc() && stop == end) return whole;
  const std::optional<double> number = ParseNumber(text);
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (!number || std::floor(*number) != *number || std::abs(*number) > kExact) return std::nullopt;
  return static_cast<int64_t>(*number);
}

std::string NumberText(double value) {
  char buffer[40];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof(buffer), value);
  return {buffer, error == std::errc() ? end : buffer};
}

std::string Place::Text() const {
  return line > 0 ? absl::StrCat(source, ":", line) : source;
}

std::string Issue::Text() const {
  if (key.empty()) return absl::StrCat(place.Text(), ": ", message);
  return absl::StrCat(place.Text(), ": ", Shown(key), ": ", message);
}

void Issues::Add(const Place& place, absl::string_view key, absl::string_view message) {
  issues_.push_back({place, absl::StrCat(key), absl::StrCat(message)});
}

std::string Issues::Text() const {
  std::vector<Issue> sorted = issues_;
  std::stable_sort(sorted.begin(), sorted.end(), [](const Issue& a, const Issue& b) {
    if (a.place.order != b.place.order) return a.place.order < b.place.order;
    if (a.place.source != b.place.source) return false;
    return a.place.line < b.place.line;
  });
  std::vector<std::string> lines;
  std::set<std::string> seen;
  for (const Issue& issue : sorted) {
    std::string line = issue.Text();
    if (seen.insert(line).second) lines.push_back(std::move(line));
  }
  if (lines.size() > kMostShown) {
    const size_t more = lines.size() - kMostShown;
    lines.resize(kMostShown);
    lines.push_back(absl::StrCat("and ", more, " more like these; mend the first ones first"));
  }
  return absl::StrJoin(lines, "\n");
}

bool Value::is_auto() const {
  return is_scalar() && absl::EqualsIgnoreCase(scalar, "auto");
}

absl::string_view Value::word() const {
  if (quoted) return scalar;
  if (scalar == "True" || scalar == "TRUE") return "true";
  if (scalar == "False" || scalar == "FALSE") return "false";
  return scalar;
}

Value Value::Map(const Place& place) {
  Value node;
  node.kind = Kind::kMap;
  node.place = place;
  return node;
}

Value Value::Scalar(absl::string_view text, const Place& place) {
  Value node;
  node.kind = Kind::kScalar;
  node.scalar.assign(text.data(), text.size());
  node.place = place;
  return node;
}

Value Value::List(std::vector<Value> items) {
  Value node;
  node.kind = Kind::kList;
  node.items = std::move(items);
  return node;
}

Value Value::Text(absl::string_view text) {
  Value node = Scalar(text);
  node.quoted = true;
  return node;
}

Value Value::Number(double number) {
  return Scalar(NumberText(number));
}

Value Value::Whole(int64_t number) {
  return Scalar(absl::StrCat(number));
}

Value Value::Flag(bool flag) {
  return Scalar(flag ? "true" : "false");
}

const Value* Value::Find(absl::string_view key) const {
  for (const auto& [name, node] : entries) {
    if (name == key) return &node;
  }
  return nullptr;
}

Value* Value::Find(absl::string_view key) {
  return const_cast<Value*>(static_cast<const Value*>(this)->Find(key));
}

const Value* Value::FindPath(absl::string_view dotted) const {
  const Value* node = this;
  for (absl::string_view part : absl::StrSplit(dotted, '.')) {
    node = node->Find(part);
    if (node == nullptr) return nullptr;
  }
  return node;
}

bool Value::Put(absl::string_view dotted, Value value) {
  const size_t dot = dotted.find('.');
  const absl::string_view name = dotted.substr(0, dot);
  Value* const there = Find(name);
  if (dot == absl::string_view::npos) {
    if (there == nullptr) {
      entries.push_back({absl::StrCat(name), std::move(value)});
    } else {
      *there = std::move(value);
    }
    return true;
  }
  if (there == nullptr) {
    Value section = Map(value.place);
    section.Put(dotted.substr(dot + 1), std::move(value));
    entries.push_back({absl::StrCat(name), std::move(section)});
    return true;
  }
  if (there->is_null()) there->kind = Kind::kMap;
  return there->is_map() && there->Put(dotted.substr(dot + 1), std::move(value));
}

void Value::Remove(absl::string_view key) {
  std::erase_if(entries, [&](const auto& entry) { return entry.name == key; });
}

std::string Value::Found() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar: {
      const std::string shown = Shown(scalar);
      return quoted ? absl::StrCat("the text \"", shown, "\"") : shown;
    }
    case Kind::kList:
      return absl::StrCat("a list of ", items.size());
    case Kind::kMap:
      return "a map";
  }
  return "";
}

}  // namespace weft
