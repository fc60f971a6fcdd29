// A config.json that others wrote, in the keys that weft reads. It says what transformers'
// configuration of its model_type reads of it, and nothing else: such a key is taken where it says
// what weft does anyway, and refused by name where it would change the model; a key that
// transformers does not read is passed over, with a note. With auto_map the model is code of its
// own, which may read any key: then none is passed over. null, false where a number or a map is
// expected, and what is empty say nothing. Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "plan/keys/model_types.h"
#include "plan/keys/value.h"

namespace weft {

// Returns the keys of `config` that section `model` could hold instead, and the defaults that
// transformers has where the file is silent. Rotary positions are rope_theta and rope_scaling,
// however the file spells them.
Value OwnModelKeys(const Value& config, const ModelType& type, Issues* issues,
                   std::vector<std::string>* notes);

// Keys of every configuration that transformers has, separated by spaces, that say nothing about
// how the model computes.
absl::string_view KeysOfNoConsequence();

// Returns a key's value with the word that weft has for the same function.
Value SameInOurWords(const ModelType& type, absl::string_view name, const Value& node);

// Returns the text model's part of a wrapper's config.json, which has a vision tower beside it;
// null if it is no wrapper that weft knows.
const Value* TextConfigOf(const Value& config);

// Returns what a model of a type that weft does not know has beyond those that it knows, as far as
// its config.json tells: "a vision tower (vision_config), ..."; empty: it does not tell.
std::string UnknownMechanisms(const Value& config);

// Says whether two files' values are the same: numbers by what they are, not as they are written.
bool SameValue(const Value& a, const Value& b);

}  // namespace weft
