#include "plan/keys/value_text.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// `text` as a YAML scalar that reads back as a text, whatever is in it.
std::string Quoted(absl::string_view text) {
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

// Keys of the user's own (names of variables) may look like a number or like null.
std::string NameText(const std::string& name) {
  const bool is_plain = std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(static_cast<unsigned char>(c)) || c == '_';
  });
  return is_plain && name != "null" && name != "y" && name != "n" ? name : Quoted(name);
}

std::string FlowText(const Value& value) {
  switch (value.kind) {
    case Value::Kind::kNull:
      return "null";
    case Value::Kind::kScalar:
      return value.quoted ? Quoted(value.scalar) : value.scalar;
    case Value::Kind::kList:
      return absl::StrCat("[",
                          absl::StrJoin(value.items, ", ",
                                        [](std::string* text, const Value& item) {
                                          absl::StrAppend(text, FlowText(item));
                                        }),
                          "]");
    case Value::Kind::kMap:
      return absl::StrCat("{",
                          absl::StrJoin(value.entries, ", ",
                                        [](std::string* text, const ValueEntry& entry) {
                                          absl::StrAppend(text, NameText(entry.name), ": ",
                                                          FlowText(entry.node));
                                        }),
                          "}");
  }
  return "";
}

bool IsNested(const Value& value) {
  return value.is_map() || value.is_list();
}

}  // namespace

std::string YamlText(const Value& value, int indent) {
  const std::string inner(static_cast<size_t>(indent) + 2, ' ');
  const bool holds_maps = std::any_of(value.items.begin(), value.items.end(),
                                      [](const Value& item) { return item.is_map(); });
  const bool holds_nested =
      std::any_of(value.entries.begin(), value.entries.end(),
                  [](const ValueEntry& entry) { return IsNested(entry.node); });
  if (!holds_maps && !holds_nested) return absl::StrCat(" ", FlowText(value), "\n");
  std::string text = "\n";
  for (const Value& item : value.items) {
    absl::StrAppend(&text, inner, "- ", FlowText(item), "\n");
  }
  return absl::StrCat(text, LinesText(value, indent + 2));
}

std::string LinesText(const Value& map, int indent) {
  const std::string spaces(static_cast<size_t>(indent), ' ');
  std::string text;
  for (const auto& [name, node] : map.entries) {
    absl::StrAppend(&text, spaces, NameText(name), ":", YamlText(node, indent));
  }
  return text;
}

std::string LineText(const Value& value) {
  const std::string text = YamlText(value, 0);
  std::vector<absl::string_view> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    lines.push_back(absl::StripAsciiWhitespace(line));
  }
  return absl::StrJoin(lines, " ");
}

}  // namespace weft
