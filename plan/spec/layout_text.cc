#include "plan/spec/layout_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plan/spec/layout_properties.h"

namespace weft {
namespace {

template <typename T>
std::string TextOf(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return std::string(WordOf(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value ? "true" : "false";
  } else {
    return absl::StrCat(value);
  }
}

std::string TextOf(const std::vector<Recompute>& modes) {
  return absl::StrJoin(
      modes, ",", [](std::string* text, Recompute mode) { absl::StrAppend(text, WordOf(mode)); });
}

// "8,9,9,6"; of long lists neighbours that are alike together: "1,62x2,1".
std::string TextOf(const std::vector<int64_t>& blocks) {
  constexpr size_t kShort = 8;
  if (blocks.empty()) return "even";
  if (blocks.size() <= kShort) return absl::StrJoin(blocks, ",");
  std::vector<std::string> runs;
  for (size_t begin = 0, end = 0; begin < blocks.size(); begin = end) {
    while (end < blocks.size() && blocks[end] == blocks[begin]) ++end;
    runs.push_back(end - begin == 1 ? absl::StrCat(blocks[begin])
                                    : absl::StrCat(end - begin, "x", blocks[begin]));
  }
  return absl::StrJoin(runs, ",");
}

template <typename T>
std::string TextOf(const std::optional<T>& asked) {
  return TextOf(*asked);
}

}  // namespace

std::vector<PropertyText> PropertyTexts(const Layout& layout) {
  std::vector<PropertyText> texts;
  EachLayoutProperty([&](const auto& row) {
    const auto& value = layout.*row.value;
    const bool is_shown =
        row.in_text == InText::kAlways || (row.in_text == InText::kInPipelines && layout.pp > 1);
    if (!is_shown && value == Layout{}.*row.value) return;
    texts.push_back({row.name, row.key, TextOf(value)});
  });
  return texts;
}

std::string LayoutText(const Layout& layout) {
  std::vector<std::string> parts;
  for (const PropertyText& property : PropertyTexts(layout)) {
    if (property.name == "recompute" && !layout.recompute_per_stage.empty()) continue;
    parts.push_back(absl::StrCat(property.name, "=", property.value));
  }
  return absl::StrJoin(parts, " ");
}

std::vector<PropertyText> PropertyTexts(const LayoutSpec& spec) {
  std::vector<PropertyText> texts;
  EachLayoutProperty([&](const auto& row) {
    const auto& asked = spec.*row.asked;
    if (IsAsked(asked)) texts.push_back({row.name, row.key, TextOf(asked)});
  });
  return texts;
}

std::string KeyedText(absl::Span<const PropertyText> properties) {
  return absl::StrJoin(properties, ", ", [](std::string* text, const PropertyText& property) {
    absl::StrAppend(text, property.key, " ", property.value);
  });
}

BrokenProperties BrokenBy(const Layout& layout, const LayoutSpec& spec) {
  BrokenProperties broken{.properties = {}, .freed = spec};
  EachLayoutProperty([&](const auto& row) {
    const auto& asked = spec.*row.asked;
    if (!IsAsked(asked)) return;
    if (row.keeps != nullptr ? row.keeps(spec, layout) : asked == layout.*row.value) return;
    broken.properties.push_back({row.name, row.key, TextOf(asked)});
    broken.freed.*row.asked = {};
  });
  return broken;
}

}  // namespace weft
