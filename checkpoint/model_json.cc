#include "checkpoint/model_json.h"

#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::json;

// The fields of ModelShape beside its family.
struct CountField {
  const char* key;
  int64_t ModelShape::*field;
};
constexpr CountField kCounts[] = {
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
};
struct NumberField {
  const char* key;
  double ModelShape::*field;
};
constexpr NumberField kNumbers[] = {
    {"norm_eps", &ModelShape::norm_eps},
    {"initializer_range", &ModelShape::initializer_range},
    {"rope_theta", &ModelShape::rope_theta},
};
struct FlagField {
  const char* key;
  bool ModelShape::*field;
};
constexpr FlagField kFlags[] = {
    {"tied_embeddings", &ModelShape::tied_embeddings},
    {"attention_bias", &ModelShape::attention_bias},
};
struct ScalingField {
  const char* key;
  double RopeScaling::*field;
};
constexpr ScalingField kScalings[] = {
    {"rope_factor", &RopeScaling::factor},
    {"rope_low_freq_factor", &RopeScaling::low_freq_factor},
    {"rope_high_freq_factor", &RopeScaling::high_freq_factor},
};
constexpr char kRopeOriginal[] = "rope_original_max_positions";

absl::Status Wrong(absl::string_view found, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("found ", found, ", expected ", expected));
}

absl::Status ReadCount(const Json& object, const char* key, int64_t* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Wrong(absl::StrCat("no whole number at '", key, "'"), "one >= 0");
  }
  *value = found->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadNumber(const Json& object, const char* key, double* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) {
    return Wrong(absl::StrCat("no number at '", key, "'"), "one");
  }
  *value = found->get<double>();
  return absl::OkStatus();
}

absl::Status ReadFlag(const Json& object, const char* key, bool* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_boolean()) {
    return Wrong(absl::StrCat("no flag at '", key, "'"), "true or false");
  }
  *value = found->get<bool>();
  return absl::OkStatus();
}

absl::Status ReadFamily(const Json& object, ModelFamily* family) {
  const auto found = object.find("family");
  if (found == object.end() || !found->is_string()) return Wrong("no string at 'family'", "one");
  const absl::StatusOr<ModelFamily> parsed = ParseFamily(found->get<std::string>());
  if (!parsed.ok()) {
    return Wrong(absl::StrCat("model family ", found->get<std::string>()), "gpt2 or llama");
  }
  *family = *parsed;
  return absl::OkStatus();
}

}  // namespace

std::string ModelJson(const ModelShape& model) {
  std::string text = absl::StrCat("{\"family\": \"", WordOf(model.family), "\"");
  const auto add = [&text](const char* key, const std::string& value) {
    absl::StrAppend(&text, ",\n    \"", key, "\": ", value);
  };
  const auto digits = [](double value) { return absl::StrFormat("%.17g", value); };
  for (const auto& [key, field] : kCounts) add(key, absl::StrCat(model.*field));
  for (const auto& [key, field] : kNumbers) add(key, digits(model.*field));
  for (const auto& [key, field] : kFlags) add(key, model.*field ? "true" : "false");
  for (const auto& [key, field] : kScalings) add(key, digits(model.rope_scaling.*field));
  add(kRopeOriginal, absl::StrCat(model.rope_scaling.original_max_positions));
  return text + "}";
}

absl::StatusOr<ModelShape> ParseModelJson(absl::string_view text) {
  const Json object = ParseJson(text).value_or(nullptr);
  if (!object.is_object()) return Wrong("no object", "the model's shape");
  ModelShape model;
  RETURN_IF_ERROR(ReadFamily(object, &model.family));
  for (const auto& [key, field] : kCounts) {
    RETURN_IF_ERROR(ReadCount(object, key, &(model.*field)));
  }
  for (const auto& [key, field] : kNumbers) {
    RETURN_IF_ERROR(ReadNumber(object, key, &(model.*field)));
  }
  for (const auto& [key, field] : kFlags) {
    RETURN_IF_ERROR(ReadFlag(object, key, &(model.*field)));
  }
  for (const auto& [key, field] : kScalings) {
    RETURN_IF_ERROR(ReadNumber(object, key, &(model.rope_scaling.*field)));
  }
  RETURN_IF_ERROR(ReadCount(object, kRopeOriginal, &model.rope_scaling.original_max_positions));
  const absl::Status valid = CheckModel(model);
  if (!valid.ok()) return Wrong(valid.message(), "a model that can be");
  return model;
}

}  // namespace weft
