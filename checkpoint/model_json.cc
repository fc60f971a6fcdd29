#include "checkpoint/model_json.h"

#include <cstdint>
#include <limits>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// The key is older than the word.
constexpr char kArchitecture[] = "family";

// The members of ModelShape beside its architecture, but for those of models that nobody trains.
using Field = std::variant<int64_t ModelShape::*, double ModelShape::*, bool ModelShape::*,
                           std::vector<AttentionSpan> ModelShape::*,
                           std::vector<bool> ModelShape::*, double RopeScaling::*,
                           int64_t RopeScaling::*, bool RopeScaling::*, RopeKind RopeScaling::*>;

struct Member {
  const char* key;
  Field field;
  // Files of before it was there lack it: it is then as the architecture has it.
  bool is_new = false;
};
constexpr Member kMembers[] = {
    {"vocab_size", &ModelShape::vocab_size},
    {"hidden_size", &ModelShape::hidden_size},
    {"num_blocks", &ModelShape::num_blocks},
    {"num_heads", &ModelShape::num_heads},
    {"num_kv_heads", &ModelShape::num_kv_heads},
    {"head_dim", &ModelShape::head_dim},
    {"ffn_size", &ModelShape::ffn_size},
    {"max_positions", &ModelShape::max_positions},
    {"num_experts", &ModelShape::num_experts},
    {"experts_per_token", &ModelShape::experts_per_token},
    {"expert_ffn_size", &ModelShape::expert_ffn_size},
    {"norm_eps", &ModelShape::norm_eps},
    {"initializer_range", &ModelShape::initializer_range},
    {"rope_theta", &ModelShape::rope_theta},
    {"tied_embeddings", &ModelShape::tied_embeddings},
    {"attention_bias", &ModelShape::attention_bias},
    {"rope_factor", &RopeScaling::factor},
    {"rope_low_freq_factor", &RopeScaling::low_freq_factor},
    {"rope_high_freq_factor", &RopeScaling::high_freq_factor},
    {"rope_original_max_positions", &RopeScaling::original_max_positions},
    {"rope_type", &RopeScaling::kind, true},
    {"rope_beta_fast", &RopeScaling::beta_fast, true},
    {"rope_beta_slow", &RopeScaling::beta_slow, true},
    {"rope_truncates", &RopeScaling::truncates, true},
    {"rope_attention_factor", &RopeScaling::attention_factor, true},
    {"rope_mscale", &RopeScaling::mscale, true},
    {"rope_mscale_all_dim", &RopeScaling::mscale_all_dim, true},
    {"qk_norms", &ModelShape::qk_norms, true},
    {"wide_qk_norms", &ModelShape::wide_qk_norms, true},
    {"layer_norms", &ModelShape::layer_norms, true},
    {"bare_norms", &ModelShape::bare_norms, true},
    {"plain_ffn", &ModelShape::plain_ffn, true},
    {"bare_output", &ModelShape::bare_output, true},
    {"ffn_bias", &ModelShape::ffn_bias, true},
    {"learned_positions", &ModelShape::learned_positions, true},
    {"scaled_residual_init", &ModelShape::scaled_residual_init, true},
    {"embedding_multiplier", &ModelShape::embedding_multiplier, true},
    {"residual_multiplier", &ModelShape::residual_multiplier, true},
    {"attention_multiplier", &ModelShape::attention_multiplier, true},
    {"logits_scaling", &ModelShape::logits_scaling, true},
    {"logit_scale", &ModelShape::logit_scale, true},
    {"window", &ModelShape::window, true},
    {"spans", &ModelShape::spans, true},
    {"turns", &ModelShape::turns, true},
    {"sliding_rope_theta", &ModelShape::sliding_rope_theta, true},
    {"rotary_share", &ModelShape::rotary_share, true},
    {"interleaved_rotation", &ModelShape::interleaved_rotation, true},
    {"pre_norms", &ModelShape::pre_norms, true},
    {"post_norms", &ModelShape::post_norms, true},
    {"parallel_residual", &ModelShape::parallel_residual, true},
    {"shares_norm", &ModelShape::shares_norm, true},
    {"norm_offset", &ModelShape::norm_offset, true},
    {"scaled_embeddings", &ModelShape::scaled_embeddings, true},
    {"query_scalar", &ModelShape::query_scalar, true},
    {"attention_cap", &ModelShape::attention_cap, true},
    {"logit_cap", &ModelShape::logit_cap, true},
};

// Calls visit(reference to the member's value).
template <typename Model, typename Visit>
auto Visited(Model& model, const Field& field, const Visit& visit) {
  struct Each {
    Model& model;
    const Visit& visit;
    auto operator()(int64_t ModelShape::*of) const { return visit(model.*of); }
    auto operator()(double ModelShape::*of) const { return visit(model.*of); }
    auto operator()(bool ModelShape::*of) const { return visit(model.*of); }
    auto operator()(std::vector<AttentionSpan> ModelShape::*of) const { return visit(model.*of); }
    auto operator()(std::vector<bool> ModelShape::*of) const { return visit(model.*of); }
    auto operator()(double RopeScaling::*of) const { return visit(model.rope_scaling.*of); }
    auto operator()(int64_t RopeScaling::*of) const { return visit(model.rope_scaling.*of); }
    auto operator()(bool RopeScaling::*of) const { return visit(model.rope_scaling.*of); }
    auto operator()(RopeKind RopeScaling::*of) const { return visit(model.rope_scaling.*of); }
  };
  return std::visit(Each{model, visit}, field);
}

std::string TextOf(int64_t value) {
  return absl::StrCat(value);
}
std::string TextOf(double value) {
  return absl::StrFormat("%.17g", value);
}
std::string TextOf(bool value) {
  return value ? "true" : "false";
}
template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
std::string TextOf(E value) {
  return absl::StrCat("\"", WordOf(value), "\"");
}
template <typename T>
std::string TextOf(const std::vector<T>& values) {
  std::vector<std::string> items;
  for (const T value : values) items.push_back(TextOf(value));
  return absl::StrCat("[", absl::StrJoin(items, ", "), "]");
}

absl::Status Wrong(absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, ", expected ", expected));
}

absl::Status ReadValue(const Json& found, const char* key, int64_t& value) {
  if (!found.is_number_unsigned() ||
      found.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Wrong(absl::StrCat("no whole number at '", key, "'"), "one >= 0");
  }
  value = found.get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& found, const char* key, double& value) {
  if (!found.is_number()) return Wrong(absl::StrCat("no number at '", key, "'"), "one");
  value = found.get<double>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& found, const char* key, bool& value) {
  if (!found.is_boolean()) return Wrong(absl::StrCat("no flag at '", key, "'"), "true or false");
  value = found.get<bool>();
  return absl::OkStatus();
}

template <typename E, typename = std::enable_if_t<std::is_enum_v<E>>>
absl::Status ReadValue(const Json& found, const char* key, E& value) {
  const auto parsed = ParseWord<E>(found.is_string() ? found.get<std::string>() : "", key);
  if (!parsed.ok()) {
    return Wrong(absl::StrCat("no kind at '", key, "'"), Alternatives(WordsOf(E())));
  }
  value = *parsed;
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadValue(const Json& found, const char* key, std::vector<T>& values) {
  if (!found.is_array()) return Wrong(absl::StrCat("no list at '", key, "'"), "one");
  values.clear();
  for (const Json& item : found) {
    T value = {};
    RETURN_IF_ERROR(ReadValue(item, key, value));
    values.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ReadArchitecture(const Json& object, ModelShape& model) {
  const auto found = object.find(kArchitecture);
  if (found == object.end() || !found->is_string()) {
    return Wrong(absl::StrCat("no string at '", kArchitecture, "'"), "one");
  }
  const absl::StatusOr<Architecture> parsed =
      ParseWord<Architecture>(found->get<std::string>(), "an architecture that weft knows");
  if (!parsed.ok()) {
    return Wrong(absl::StrCat("model family ", found->get<std::string>()),
                 Alternatives(WordsOf(Architecture())));
  }
  SetArchitecture(*parsed, model);
  return absl::OkStatus();
}

}  // namespace

std::string ModelJson(const ModelShape& model) {
  std::string text = absl::StrCat("{\"", kArchitecture, "\": \"", WordOf(model.architecture), "\"");
  for (const Member& member : kMembers) {
    absl::StrAppend(&text, ",\n    \"", member.key, "\": ",
                    Visited(model, member.field, [](const auto& value) { return TextOf(value); }));
  }
  return text + "}";
}

absl::StatusOr<ModelShape> ParseModelJson(absl::string_view text) {
  const Json object = ParseJson(text).value_or(nullptr);
  if (!object.is_object()) return Wrong("no object", "the model's shape");
  ModelShape model;
  RETURN_IF_ERROR(ReadArchitecture(object, model));
  for (const Member& member : kMembers) {
    const auto found = object.find(member.key);
    if (found == object.end() && member.is_new) continue;
    const Json value = found == object.end() ? Json() : *found;
    RETURN_IF_ERROR(Visited(model, member.field,
                            [&](auto& field) { return ReadValue(value, member.key, field); }));
  }
  // Older files say nothing of mechanisms, and that gpt2 has no biases.
  if (!object.contains("learned_positions")) SetArchitecture(model.architecture, model);
  const absl::Status valid = CheckModel(model);
  if (!valid.ok()) return Wrong(valid.message(), "a model that can be");
  return model;
}

}  // namespace weft
