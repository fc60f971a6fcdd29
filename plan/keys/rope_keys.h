// Keys of rope_scaling, by its kind: a row for each number that a RopeScaling has. Pure.
#pragma once
#include <optional>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/keys/key_field.h"
#include "plan/keys/model_types.h"
#include "plan/keys/value.h"
#include "plan/keys/value_reader.h"
#include "plan/spec/model.h"

namespace weft {

struct RopeField {
  absl::string_view key;
  KeyField (*field)(RopeScaling&);
  bool is_optional = false;  // not written where it says what it says by default
};
absl::Span<const RopeField> RopeFields();

// The keys of a kind, separated by spaces.
absl::string_view RopeKeysOf(RopeKind kind);

// Reads the map rope_scaling of a model's tree, in the keys of its kind. Of types that are only
// planned nothing is read: no plan depends on it.
void ReadRopeScaling(const Value& model_tree, const ModelType& model_type, Issues* issues,
                     ModelShape* model);

// Rotary positions of blocks that see all and of sliding ones, where a map has one for each span.
struct RopeBySpan {
  const Value* full = nullptr;           // the map of blocks that see all
  const Value* sliding_theta = nullptr;  // the base of sliding blocks; null: not said
};

// transformers reads nothing of one rope_parameters for all blocks of such a model.
inline constexpr absl::string_view kOneMapForAllSpans =
    "found one map for all blocks; write one for each kind, full_attention and sliding_attention";

// Splits the map `key` of a model that has a map for each span; null: it is one map for all blocks.
// Sliding blocks may differ by their base alone: anything else that they say is refused.
std::optional<RopeBySpan> RopeBySpanOf(const Value& map, absl::string_view key, Issues* issues);

// Returns the value of that key which reads back as `scaling`.
Value RopeScalingValue(const RopeScaling& scaling);

}  // namespace weft
