// Keys of rope_scaling, by its kind: a row for each number that a RopeScaling has. Pure.
#pragma once
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/keys/key_field.h"
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

}  // namespace weft
