// A model as its config.json: what transformers' configuration of its type reads, in that type's
// spelling. OwnModelKeys (plan/keys/config_json.h) reads it back. Pure.
#pragma once
#include "plan/keys/value.h"
#include "plan/spec/model.h"

namespace weft {

// Returns the entries of the file that say how the model computes, model_type and architectures
// first. What a type reads and weft does in one way only (dropout) is stated as that.
// REQUIRES: CheckModel holds.
Value ConfigTree(const ModelShape& model);

}  // namespace weft
