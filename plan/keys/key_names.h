// The names of keys in a file: which are weft's, which are other systems' for the same thing, which
// are unknown, and what a person may have meant. Pure.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/value.h"

namespace weft {

// weft's name of a dotted key; the key itself if it is none of the aliases.
std::string CanonicalKey(absl::string_view dotted);

// Returns the other names that keys have, dotted as they stand in a file, and the keys that they
// are read as: ("zero_optimization.stage", "parallelism.zero_stage"). Those of keys of `model` are
// model_keys.h's.
std::vector<std::pair<std::string, std::string>> KeyAliases();

// Renames aliases to weft's names, once: a key together with its alias is an issue with both lines.
// Every rename adds a note. What changes its meaning between systems is an issue with a hint.
void RenameAliases(Value* root, Issues* issues, std::vector<std::string>* notes);

// Adds an issue, with the nearest known key, for each key that is unknown, and one for each known
// key whose value weft cannot carry out yet.
void CheckKeys(const Value& root, Issues* issues);

}  // namespace weft
