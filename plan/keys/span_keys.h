// Keys by which files say how blocks of one model differ: which of them see a window of keys, and
// which have rotary positions. Rules of a type ("from block 28 on", "every fourth not") become
// lists by block. Pure.
#pragma once
#include "absl/strings/string_view.h"
#include "plan/keys/model_types.h"
#include "plan/keys/value.h"
#include "plan/keys/value_reader.h"
#include "plan/spec/model.h"

namespace weft {

// Keys of rules, separated by spaces. The lists themselves are layer_types and no_rope_layers.
inline constexpr absl::string_view kSpanRules =
    "use_sliding_window max_window_layers no_rope_layer_interval sliding_window_pattern";

// Fills ModelShape::spans and turns, and takes a window away that is switched off. REQUIRES: the
// model's other keys were read.
void ReadSpans(const Value& tree, const ModelType& type, Issues* issues, ModelShape* model);

// Return what ReadSpans reads back, of a model of the type; null: it need not be said.
Value SpansValue(const ModelShape& model, const ModelType& type);
Value TurnsValue(const ModelShape& model, const ModelType& type);

}  // namespace weft
