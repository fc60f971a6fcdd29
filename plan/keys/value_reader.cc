#include "plan/keys/value_reader.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/spec/nearest.h"

namespace weft {

const Value* ValueReader::Node(absl::string_view key) const {
  const Value* node = root_.FindPath(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

bool ValueReader::IsAuto(absl::string_view key) const {
  const Value* node = Node(key);
  return node != nullptr && node->is_auto();
}

Place ValueReader::PlaceOf(absl::string_view key) const {
  while (!key.empty()) {
    if (const Value* node = root_.FindPath(key)) return node->place;
    const size_t dot = key.rfind('.');
    key = dot == absl::string_view::npos ? "" : key.substr(0, dot);
  }
  return root_.place;
}

void ValueReader::Wrong(absl::string_view key, absl::string_view message) const {
  const absl::string_view dot = prefix_.empty() || key.empty() ? "" : ".";
  issues_->Add(PlaceOf(key), absl::StrCat(prefix_, dot, key), message);
}

void ValueReader::CheckKnown(absl::string_view key, const std::vector<std::string>& known) const {
  const absl::string_view name = key.substr(key.rfind('.') + 1);
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  Wrong(key, absl::StrCat("unknown key; ", Suggestion(name, known, "the docs list all")));
}

ValueReader ValueReader::Item(absl::string_view key, const Value& item, size_t index) const {
  return {item, absl::StrCat(prefix_, prefix_.empty() ? "" : ".", key, "[", index, "]"), issues_};
}

std::optional<int64_t> ValueReader::WholeOf(const Value& node, absl::string_view key,
                                            absl::string_view allowed) const {
  if (node.is_scalar() && !node.quoted) {
    if (const std::optional<int64_t> value = ParseWholeNumber(node.scalar)) return value;
  }
  const bool number_in_quotes = node.quoted && ParseWholeNumber(node.scalar).has_value();
  Wrong(key, absl::StrCat("found ", node.Found(), "; expected ", allowed,
                          number_in_quotes ? "; remove the quotes" : ""));
  return std::nullopt;
}

std::optional<int64_t> ValueReader::Whole(absl::string_view key) const {
  const Value* node = Node(key);
  if (node == nullptr) return std::nullopt;
  return WholeOf(*node, key, "a whole number");
}

std::optional<int> ValueReader::Small(absl::string_view key) const {
  const std::optional<int64_t> value = Whole(key);
  if (!value) return std::nullopt;
  if (*value > std::numeric_limits<int>::max() || *value < std::numeric_limits<int>::min()) {
    Wrong(key, absl::StrCat("found ", *value, "; expected a whole number below 2147483648"));
    return std::nullopt;
  }
  return static_cast<int>(*value);
}

std::optional<double> ValueReader::Number(absl::string_view key) const {
  const Value* node = Node(key);
  if (node == nullptr) return std::nullopt;
  const std::optional<double> value =
      node->is_scalar() ? ParseNumber(node->scalar) : std::optional<double>();
  if (value && !node->quoted) return value;
  Wrong(key, absl::StrCat("found ", node->Found(), "; expected a number",
                          value ? "; remove the quotes" : ""));
  return std::nullopt;
}

std::optional<bool> ValueReader::Flag(absl::string_view key) const {
  const Value* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar() && !node->quoted) {
    if (node->word() == "true") return true;
    if (node->word() == "false") return false;
  }
  Wrong(key, absl::StrCat("found ", node->Found(), "; expected true or false"));
  return std::nullopt;
}

std::optional<std::string> ValueReader::Text(absl::string_view key) const {
  const Value* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar() && !node->scalar.empty()) return node->scalar;
  Wrong(key, absl::StrCat("found ", node->is_scalar() ? "an empty text" : node->Found(),
                          "; expected a text"));
  return std::nullopt;
}

void ValueReader::Read(absl::string_view key, int64_t* field) const {
  *field = Whole(key).value_or(*field);
}
void ValueReader::Read(absl::string_view key, int* field) const {
  *field = Small(key).value_or(*field);
}
void ValueReader::Read(absl::string_view key, double* field) const {
  *field = Number(key).value_or(*field);
}
void ValueReader::Read(absl::string_view key, std::string* field) const {
  *field = Text(key).value_or(*field);
}

void ValueReader::ReadOrAuto(absl::string_view key, std::optional<int64_t>* field) const {
  const Value* node = Node(key);
  if (node == nullptr || IsAuto(key)) return;
  *field = WholeOf(*node, key, "a whole number or auto");
}

void ValueReader::ReadOrAuto(absl::string_view key, std::optional<int>* field) const {
  std::optional<int64_t> whole;
  ReadOrAuto(key, &whole);
  if (!whole) return;
  if (*whole > std::numeric_limits<int>::max() || *whole < std::numeric_limits<int>::min()) {
    Wrong(key, absl::StrCat("found ", *whole, "; expected a whole number below 2147483648"));
    return;
  }
  *field = static_cast<int>(*whole);
}

}  // namespace weft
