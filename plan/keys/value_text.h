// A Value as YAML, without a library: what weft prints is the plain part of YAML that any reader
// reads back as the same tree. Pure.
#pragma once
#include <string>

#include "plan/keys/value.h"

namespace weft {

// Returns what stands behind "key:" where the key's own indent is `indent` spaces, with the
// newline: " 12\n", " [1, 2]\n", " {a: 1}\n"; a map that holds more than scalars, and a list of
// maps, are lines of their own.
std::string YamlText(const Value& value, int indent);

// Returns the entries of a map, a key a line, each indented by `indent` spaces.
std::string LinesText(const Value& map, int indent);

// The same as YamlText in one line, as it stands in a sentence; of a list of maps "- {a: 1} - {a:
// 2}".
std::string LineText(const Value& value);

}  // namespace weft
