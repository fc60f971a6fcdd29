// A YAML document as a Value (plan/keys/value.h). Duplicate keys are kept and reported: yaml-cpp
// alone would take one of them in silence. The only file of weft that includes yaml-cpp.
#pragma once
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "plan/keys/value.h"

namespace weft {

// Parses one document. Empty, with issues added, if the text is not YAML; duplicate keys are issues
// but still yield a tree (of the first of them). `order` is Place::order of all nodes.
std::optional<Value> ParseYaml(const std::string& text, absl::string_view source, int order,
                               Issues* issues);

// A value given on the command line; its place is "--set <text>".
std::optional<Value> ParseYamlValue(const std::string& text, const Place& place, Issues* issues);

}  // namespace weft
