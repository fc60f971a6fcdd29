#include "plan/keys/rope_keys.h"

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

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
      "mscale mscale_all_dim"};
  return kKeys[static_cast<size_t>(kind)];
}

void ReadRopeScaling(const Value& model_tree, const ModelType& model_type, Issues* issues,
                     ModelShape* model) {
  const Value* tree = model_tree.Find("rope_scaling");
  // No plan depends on it.
  if (tree == nullptr || tree->is_null() || model_type.is_only_planned()) return;
  constexpr absl::string_view kKey = "model.rope_scaling";
  const Value* type = tree->Find("rope_type");
  if (type == nullptr) type = tree->Find("type");
  const std::string name = type == nullptr ? "" : type->scalar;
  const absl::StatusOr<RopeKind> kind = ParseWord<RopeKind>(name, "a rope_type");
  if (!kind.ok() && name != "default") {
    issues->Add(tree->place, kKey,
                absl::StrCat(type == nullptr ? tree->Found() : name,
                             " is not supported yet; use null or a map with rope_type ",
                             Alternatives(WordsOf(RopeKind()))));
    return;
  }
  const absl::string_view keys = kind.ok() ? RopeKeysOf(*kind) : "";
  for (const auto& [key, node] : tree->entries) {
    if (key == "rope_type" || key == "type" || HasWord(keys, key)) continue;
    issues->Add(node.place, absl::StrCat(kKey, ".", key),
                absl::StrCat("unknown key of rope_type ", name,
                             keys.empty() ? std::string("; it takes none")
                                          : absl::StrCat("; known are ", keys)));
  }
  if (!kind.ok()) return;
  if (tree->Find("factor") == nullptr) {
    issues->Add(tree->place, absl::StrCat(kKey, ".factor"),
                absl::StrCat("missing; rope_type ", name, " needs it"));
  }
  model->rope_scaling.kind = *kind;
  const ValueReader values(*tree, kKey, issues);
  for (const RopeField& row : RopeFields()) {
    if (HasWord(keys, row.key)) ReadKey(values, row.key, row.field(model->rope_scaling), nullptr);
  }
}

std::optional<RopeBySpan> RopeBySpanOf(const Value& map, absl::string_view key, Issues* issues) {
  const Value* const full = map.Find(WordOf(AttentionSpan::kFull));
  if (full == nullptr || !full->is_map()) return std::nullopt;
  RopeBySpan parts = {.full = full};
  const absl::string_view span = WordOf(AttentionSpan::kSliding);
  const Value* const sliding = map.Find(span);
  if (sliding == nullptr || !sliding->is_map()) return parts;
  for (const auto& [name, node] : sliding->entries) {
    const auto refuse = [&](absl::string_view cure) {
      issues->Add(
          node.place, absl::StrCat("model.", key),
          absl::StrCat("found ", name, " ", node.is_scalar() ? node.scalar : node.Found(), " of ",
                       span, ", which is not supported yet in blocks with a window; ", cure));
    };
    if (name == "rope_theta") {
      parts.sliding_theta = &node;
    } else if (name == "rope_type" || name == "type") {
      if (!node.is_null() && node.scalar != "default") refuse("use default");
    } else if (name == "partial_rotary_factor") {
      if (!node.is_null() && ParseNumber(node.scalar) != 1) refuse("use 1");
    } else {
      refuse("take it out");
    }
  }
  return parts;
}

Value RopeScalingValue(const RopeScaling& scaling) {
  if (scaling.factor == 1) return {};
  Value map = Value::Map();
  map.entries = {{"rope_type", Value::Scalar(WordOf(scaling.kind))}};
  RopeScaling copy = scaling;
  RopeScaling plain;
  for (const RopeField& row : RopeFields()) {
    if (!HasWord(RopeKeysOf(scaling.kind), row.key)) continue;
    const Value value = PrintField(row.field(copy));
    const bool is_said = !row.is_optional || value.scalar != PrintField(row.field(plain)).scalar;
    if (is_said) map.entries.push_back({std::string(row.key), value});
  }
  return map;
}

}  // namespace weft
