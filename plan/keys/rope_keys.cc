#include "plan/keys/rope_keys.h"

#include <cstddef>

namespace weft {
namespace {

#define WEFT_ROPE(member) [](RopeScaling& scaling) -> KeyField { return &scaling.member; }
constexpr RopeField kFields[] = {
    {"factor", WEFT_ROPE(factor)},
    {"low_freq_factor", WEFT_ROPE(low_freq_factor)},
    {"high_freq_factor", WEFT_ROPE(high_freq_factor)},
    {"original_max_position_embeddings", WEFT_ROPE(original_max_positions)},
    {"beta_fast", WEFT_ROPE(beta_fast), true},
    {"beta_slow", WEFT_ROPE(beta_slow), true},
    {"truncate", WEFT_ROPE(truncates), true},
    {"attention_factor", WEFT_ROPE(attention_factor), true},
    {"mscale", WEFT_ROPE(mscale), true},
    {"mscale_all_dim", WEFT_ROPE(mscale_all_dim), true},
};
#undef WEFT_ROPE

}  // namespace

absl::Span<const RopeField> RopeFields() {
  return kFields;
}

absl::string_view RopeKeysOf(RopeKind kind) {
  static constexpr absl::string_view kKeys[] = {
      // kLlama3, kLinear, kYarn
      "factor low_freq_factor high_freq_factor original_max_position_embeddings", "factor",
      "factor original_max_position_embeddings beta_fast beta_slow truncate attention_factor "
      "mscale "
      "mscale_all_dim"};
  return kKeys[static_cast<size_t>(kind)];
}

}  // namespace weft
