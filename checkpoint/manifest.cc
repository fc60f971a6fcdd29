#include "checkpoint/manifest.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "checkpoint/durable_file.h"
#include "nlohmann/json.hpp"
#include "plan/errors.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;

constexpr absl::string_view kHashLineStart = "  \"manifest_xxh3\": \"";
constexpr absl::string_view kHashLineEnd = "\"\n}\n";
constexpr size_t kHexDigits = 32;
constexpr int kWithoutModel = 2;  // the format before this one

absl::Status Damaged(absl::string_view found, absl::string_view expected) {
  return absl::DataLossError(
      absl::StrCat(kManifestFile, ": found ", found, ", expected ", expected));
}

std::string HashLine(absl::string_view body) {
  return absl::StrCat(kHashLineStart, HashBytes(body), kHashLineEnd);
}

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool IsHash(const std::string& text) {
  return text.size() == kHexDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return ('0' <= c && c <= '9') || ('a' <= c && c <= 'f');
         });
}

// A name inside the folder: no way out of it.
bool IsPlainName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && !absl::StrContains(name, '/') &&
         !absl::StrContains(name, '\0');
}

absl::Status ReadCount(const Json& object, const char* key, int64_t* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_unsigned() ||
      found->get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Damaged(absl::StrCat("no whole number at '", key, "'"), "one >= 0");
  }
  *value = found->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadString(const Json& object, const char* key, std::string* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_string()) {
    return Damaged(absl::StrCat("no string at '", key, "'"), "one");
  }
  *value = found->get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadProgress(const Json& object, RunProgress* progress) {
  RETURN_IF_ERROR(ReadCount(object, "skipped_steps", &progress->skipped_steps));
  RETURN_IF_ERROR(ReadCount(object, "skipped_in_a_row", &progress->skipped_in_a_row));
  RETURN_IF_ERROR(ReadCount(object, "loss_scale_good_steps", &progress->loss_scale_good_steps));
  RETURN_IF_ERROR(ReadCount(object, "loss_scale_hysteresis", &progress->loss_scale_hysteresis));
  const auto found = object.find("loss_scale");
  if (found == object.end() || !found->is_number() || found->get<double>() < 0) {
    return Damaged("no number at 'loss_scale'", "one >= 0");
  }
  progress->loss_scale = found->get<double>();
  return absl::OkStatus();
}

// The fields of ModelShape beside its family, by the names that the manifest gives them.
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
    {"shared_ffn_size", &ModelShape::shared_ffn_size},
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

std::string ModelText(const ModelShape& model) {
  std::string text = absl::StrCat("{\"family\": ", Quoted(std::string(FamilyName(model.family))));
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

absl::Status ReadNumber(const Json& object, const char* key, double* value) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) {
    return Damaged(absl::StrCat("no number at '", key, "'"), "one");
  }
  *value = found->get<double>();
  return absl::OkStatus();
}

absl::Status ReadModel(const Json& object, ModelShape* model) {
  const auto found = object.find("model");
  if (found == object.end() || !found->is_object()) {
    return Damaged("no object at 'model'", "the model's shape");
  }
  std::string family;
  RETURN_IF_ERROR(ReadString(*found, "family", &family));
  const absl::StatusOr<ModelFamily> parsed = ParseFamily(family);
  if (!parsed.ok()) return Damaged(absl::StrCat("model family ", family), "gpt2 or llama");
  model->family = *parsed;
  for (const auto& [key, field] : kCounts)
    RETURN_IF_ERROR(ReadCount(*found, key, &(model->*field)));
  for (const auto& [key, field] : kNumbers) {
    RETURN_IF_ERROR(ReadNumber(*found, key, &(model->*field)));
  }
  for (const auto& [key, field] : kFlags) {
    const auto flag = found->find(key);
    if (flag == found->end() || !flag->is_boolean()) {
      return Damaged(absl::StrCat("no flag at '", key, "'"), "true or false");
    }
    model->*field = flag->get<bool>();
  }
  for (const auto& [key, field] : kScalings) {
    RETURN_IF_ERROR(ReadNumber(*found, key, &(model->rope_scaling.*field)));
  }
  RETURN_IF_ERROR(ReadCount(*found, kRopeOriginal, &model->rope_scaling.original_max_positions));
  const absl::Status valid = CheckModel(*model);
  if (!valid.ok()) return Damaged(valid.message(), "a model that can be");
  return absl::OkStatus();
}

absl::Status ReadFacts(const Json& object, std::map<std::string, std::string>* facts) {
  const auto found = object.find("facts");
  if (found == object.end() || !found->is_object()) {
    return Damaged("no object at 'facts'", "strings by name");
  }
  for (const auto& [key, value] : found->items()) {
    if (!value.is_string()) return Damaged(absl::StrCat("a fact '", key, "'"), "a string");
    (*facts)[key] = value.get<std::string>();
  }
  return absl::OkStatus();
}

absl::Status ReadShards(const Json& object, std::vector<ShardRecord>* shards) {
  const auto found = object.find("shards");
  if (found == object.end() || !found->is_array() || found->empty()) {
    return Damaged("no shards", "at least one");
  }
  for (const Json& entry : *found) {
    if (!entry.is_object()) return Damaged("a shard that is no object", "file, bytes, xxh3");
    ShardRecord shard;
    RETURN_IF_ERROR(ReadString(entry, "file", &shard.file));
    RETURN_IF_ERROR(ReadCount(entry, "bytes", &shard.bytes));
    RETURN_IF_ERROR(ReadString(entry, "xxh3", &shard.xxh3));
    if (!IsPlainName(shard.file)) return Damaged("a shard file that is a path", "a plain name");
    if (!IsHash(shard.xxh3)) {
      return Damaged(absl::StrCat(shard.file, " with xxh3 of another form"), "32 hex digits");
    }
    shards->push_back(std::move(shard));
  }
  return absl::OkStatus();
}

// Returns the text before the checksum line once it agrees with it.
absl::StatusOr<absl::string_view> CheckedBody(absl::string_view text) {
  const size_t tail = kHashLineStart.size() + kHexDigits + kHashLineEnd.size();
  if (text.size() < tail) {
    return Damaged(absl::StrCat(text.size(), " bytes"), "a text that ends with manifest_xxh3");
  }
  const absl::string_view body = text.substr(0, text.size() - tail);
  const absl::string_view line = text.substr(body.size());
  if (!absl::StartsWith(line, kHashLineStart) || !absl::EndsWith(line, kHashLineEnd)) {
    return Damaged(absl::StrCat(text.size(), " bytes that do not end with a manifest_xxh3 line"),
                   "that line last");
  }
  const std::string expected = HashLine(body);
  if (line != expected) {
    return Damaged(absl::StrCat("bytes that hash to ", HashBytes(body)),
                   absl::StrCat("manifest_xxh3 ", line.substr(kHashLineStart.size(), kHexDigits)));
  }
  return body;
}

}  // namespace

std::string ManifestText(const Manifest& manifest) {
  std::string text = "{\n";
  absl::StrAppend(&text,
                  "  \"format_version\": ", manifest.model ? kManifestFormatVersion : kWithoutModel,
                  ",\n");
  absl::StrAppend(&text, "  \"step\": ", manifest.step, ",\n");
  absl::StrAppend(&text, "  \"generation\": ", manifest.generation, ",\n");
  absl::StrAppend(&text, "  \"next_sample\": ", manifest.next_sample, ",\n");
  absl::StrAppend(&text, "  \"skipped_steps\": ", manifest.progress.skipped_steps, ",\n");
  absl::StrAppend(&text, "  \"skipped_in_a_row\": ", manifest.progress.skipped_in_a_row, ",\n");
  absl::StrAppend(&text, "  \"loss_scale\": ", Json(manifest.progress.loss_scale).dump(), ",\n");
  absl::StrAppend(&text, "  \"loss_scale_good_steps\": ", manifest.progress.loss_scale_good_steps,
                  ",\n");
  absl::StrAppend(&text, "  \"loss_scale_hysteresis\": ", manifest.progress.loss_scale_hysteresis,
                  ",\n");
  absl::StrAppend(&text, "  \"weft_version\": ", Quoted(manifest.weft_version), ",\n");
  absl::StrAppend(&text, "  \"layout\": ", Quoted(manifest.layout), ",\n");
  if (manifest.model) absl::StrAppend(&text, "  \"model\": ", ModelText(*manifest.model), ",\n");
  text += "  \"facts\": {";
  const char* separator = "\n";
  for (const auto& [key, value] : manifest.facts) {
    absl::StrAppend(&text, separator, "    ", Quoted(key), ": ", Quoted(value));
    separator = ",\n";
  }
  text += "\n  },\n  \"shards\": [";
  separator = "\n";
  for (const ShardRecord& shard : manifest.shards) {
    absl::StrAppend(&text, separator, "    {\"file\": ", Quoted(shard.file),
                    ", \"bytes\": ", shard.bytes, ", \"xxh3\": ", Quoted(shard.xxh3), "}");
    separator = ",\n";
  }
  text += "\n  ],\n";
  return absl::StrCat(text, HashLine(text));
}

absl::StatusOr<Manifest> ParseManifest(absl::string_view text) {
  RETURN_IF_ERROR(CheckedBody(text).status());
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return Damaged("text that is no JSON", "an object");
  Manifest manifest;
  int64_t version = 0;
  RETURN_IF_ERROR(ReadCount(json, "format_version", &version));
  if (version < kWithoutModel || version > kManifestFormatVersion) {
    return Damaged(absl::StrCat("format_version ", version),
                   absl::StrCat(kWithoutModel, " or ", kManifestFormatVersion,
                                "; use the weft that wrote it"));
  }
  RETURN_IF_ERROR(ReadCount(json, "step", &manifest.step));
  RETURN_IF_ERROR(ReadCount(json, "generation", &manifest.generation));
  RETURN_IF_ERROR(ReadCount(json, "next_sample", &manifest.next_sample));
  RETURN_IF_ERROR(ReadProgress(json, &manifest.progress));
  RETURN_IF_ERROR(ReadString(json, "weft_version", &manifest.weft_version));
  RETURN_IF_ERROR(ReadString(json, "layout", &manifest.layout));
  if (version > kWithoutModel) RETURN_IF_ERROR(ReadModel(json, &manifest.model.emplace()));
  RETURN_IF_ERROR(ReadFacts(json, &manifest.facts));
  RETURN_IF_ERROR(ReadShards(json, &manifest.shards));
  return manifest;
}

}  // namespace weft
