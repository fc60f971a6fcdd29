#include "launcher/job_file/yaml_values.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace weft {

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

std::string YamlText(absl::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      absl::StrAppend(&result, absl::string_view("\\"), absl::string_view(&c, 1));
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      absl::StrAppend(&result, "\\x", absl::Hex(static_cast<unsigned char>(c), absl::kZeroPad2));
    } else {
      result.push_back(c);
    }
  }
  result.push_back('"');
  return result;
}

std::string AbsolutePath(const std::string& path, const std::string& folder) {
  std::filesystem::path result(path);
  const char* const home = std::getenv("HOME");
  if (home != nullptr && (path == "~" || absl::StartsWith(path, "~/"))) {
    result = absl::StrCat(home, "/", path.substr(1));
  }
  if (result.is_relative()) result = std::filesystem::path(folder) / result;
  std::string text = result.lexically_normal().string();
  if (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}

const YamlNode* YamlValues::Node(absl::string_view key) const {
  const YamlNode* node = root_.FindPath(key);
  return node == nullptr || node->is_null() ? nullptr : node;
}

bool YamlValues::IsAuto(absl::string_view key) const {
  const YamlNode* node = Node(key);
  return node != nullptr && node->is_auto();
}

Place YamlValues::PlaceOf(absl::string_view key) const {
  while (!key.empty()) {
    if (const YamlNode* node = root_.FindPath(key)) return node->place;
    const size_t dot = key.rfind('.');
    key = dot == absl::string_view::npos ? "" : key.substr(0, dot);
  }
  return root_.place;
}

void YamlValues::Wrong(absl::string_view key, absl::string_view message) const {
  issues_->Add(PlaceOf(key), prefix_.empty() ? absl::StrCat(key) : absl::StrCat(prefix_, ".", key),
               message);
}

std::optional<int64_t> YamlValues::WholeOf(const YamlNode& node, absl::string_view key,
                                           absl::string_view allowed) const {
  if (node.is_scalar() && !node.quoted) {
    if (const std::optional<int64_t> value = ParseWholeNumber(node.scalar)) return value;
  }
  const bool number_in_quotes = node.quoted && ParseWholeNumber(node.scalar).has_value();
  Wrong(key, absl::StrCat("found ", node.Found(), "; expected ", allowed,
                          number_in_quotes ? "; remove the quotes" : ""));
  return std::nullopt;
}

std::optional<int64_t> YamlValues::Whole(absl::string_view key) const {
  const YamlNode* node = Node(key);
  if (node == nullptr) return std::nullopt;
  return WholeOf(*node, key, "a whole number");
}

std::optional<int> YamlValues::Small(absl::string_view key) const {
  const std::optional<int64_t> value = Whole(key);
  if (!value) return std::nullopt;
  if (*value > std::numeric_limits<int>::max() || *value < std::numeric_limits<int>::min()) {
    Wrong(key, absl::StrCat("found ", *value, "; expected a whole number below 2147483648"));
    return std::nullopt;
  }
  return static_cast<int>(*value);
}

std::optional<double> YamlValues::Number(absl::string_view key) const {
  const YamlNode* node = Node(key);
  if (node == nullptr) return std::nullopt;
  const std::optional<double> value =
      node->is_scalar() ? ParseNumber(node->scalar) : std::optional<double>();
  if (value && !node->quoted) return value;
  Wrong(key, absl::StrCat("found ", node->Found(), "; expected a number",
                          value ? "; remove the quotes" : ""));
  return std::nullopt;
}

std::optional<bool> YamlValues::Flag(absl::string_view key) const {
  const YamlNode* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar() && !node->quoted) {
    if (node->scalar == "true") return true;
    if (node->scalar == "false") return false;
  }
  Wrong(key, absl::StrCat("found ", node->Found(), "; expected true or false"));
  return std::nullopt;
}

std::optional<std::string> YamlValues::Text(absl::string_view key) const {
  const YamlNode* node = Node(key);
  if (node == nullptr) return std::nullopt;
  if (node->is_scalar() && !node->scalar.empty()) return node->scalar;
  Wrong(key, absl::StrCat("found ", node->is_scalar() ? "an empty text" : node->Found(),
                          "; expected a text"));
  return std::nullopt;
}

void YamlValues::Read(absl::string_view key, int64_t* field) const {
  *field = Whole(key).value_or(*field);
}
void YamlValues::Read(absl::string_view key, int* field) const {
  *field = Small(key).value_or(*field);
}
void YamlValues::Read(absl::string_view key, double* field) const {
  *field = Number(key).value_or(*field);
}
void YamlValues::Read(absl::string_view key, std::string* field) const {
  *field = Text(key).value_or(*field);
}

void YamlValues::ReadOrAuto(absl::string_view key, std::optional<int64_t>* field) const {
  const YamlNode* node = Node(key);
  if (node == nullptr || IsAuto(key)) return;
  *field = WholeOf(*node, key, "a whole number or auto");
}

void YamlValues::ReadOrAuto(absl::string_view key, std::optional<int>* field) const {
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
