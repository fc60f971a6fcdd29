#include "launcher/job_file/job_schema.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "plan/keys/model_keys.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using Kind = FieldForm::Kind;

Json StringsOf(Words words) {
  Json strings = Json::array();
  for (const absl::string_view word : words) strings.push_back(std::string(word));
  return strings;
}

Json TypeOf(Kind kind, Words words) {
  switch (kind) {
    case Kind::kFlag:
      return {{"type", "boolean"}};
    case Kind::kWhole:
      return {{"type", "integer"}};
    case Kind::kNumber:
      return {{"type", "number"}};
    case Kind::kText:
      return {{"type", "string"}};
    case Kind::kWord:
      return {{"enum", StringsOf(words)}};
    case Kind::kList:
      return {{"type", "array"}};
    case Kind::kMap:
      return {{"type", "object"}};
  }
  return Json::object();
}

void AddLimits(const Limits& limits, Json& schema) {
  if (std::isfinite(limits.least)) {
    schema[limits.above_least ? "exclusiveMinimum" : "minimum"] = limits.least;
  }
  if (std::isfinite(limits.most)) {
    schema[limits.below_most ? "exclusiveMaximum" : "maximum"] = limits.most;
  }
}

// The field of a job that has every part.
FieldForm FormOfKey(const JobKey& key) {
  JobSpec job;
  job.lora.emplace();
  if (key.key == "cluster.gpus_per_node") job.cluster.device.backend = BackendKind::kCuda;
  return FormOf(key.field(job));
}

Json BuiltKeySchema(const JobKey& key) {
  const FieldForm form = FormOfKey(key);
  Json schema = TypeOf(form.kind, form.words);
  if (form.items) {
    schema["items"] = TypeOf(*form.items, form.words);
    AddLimits(key.limits, schema["items"]);
  } else {
    AddLimits(key.limits, schema);
  }
  // Nothing (null) is the default of every key.
  Json any = Json::array({std::move(schema), {{"type", "null"}}});
  if (form.may_be_auto || key.otherwise == "auto") any.push_back({{"const", "auto"}});
  if (!form.pattern.empty()) {
    any.push_back({{"type", "string"}, {"pattern", std::string(form.pattern)}});
  }
  if (!form.other_word.empty()) any.push_back({{"const", std::string(form.other_word)}});
  return {{"anyOf", std::move(any)}};
}

Json KeySchema(const JobKey& key) {
  Json schema = Json::object();
  if (key.field != nullptr) {
    schema = BuiltKeySchema(key);
  } else if (key.kind == KeyKind::kNotBuilt) {
    Json accepted = Json::array({nullptr});
    for (absl::string_view word : absl::StrSplit(key.otherwise, ' ', absl::SkipEmpty())) {
      const Json value = Json::parse(std::string(word), nullptr, false);
      accepted.push_back(value.is_discarded() ? Json(std::string(word)) : value);
    }
    schema = {{"enum", std::move(accepted)}};
  }
  schema["description"] = absl::StrCat(MeaningText(key), "; default: ", DefaultText(key));
  return schema;
}

}  // namespace

std::string JobSchema() {
  Json sections = Json::object();
  for (const JobKey& key : JobKeys()) {
    if (key.section() == key.key) {
      sections[std::string(key.key)] = KeySchema(key);
      continue;
    }
    Json& section = sections[std::string(key.section())];
    if (section.is_null()) {
      section = {{"type", Json::array({"object", "null"})},
                 {"properties", Json::object()},
                 {"additionalProperties", false}};
    }
    section["properties"][std::string(key.name())] = KeySchema(key);
  }
  for (const ModelFamily family : {ModelFamily::kGpt2, ModelFamily::kLlama}) {
    for (const std::string& name : ModelKeyList(family)) {
      sections["model"]["properties"].emplace(name, Json::object());
    }
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "weft job.yaml"},
                       {"type", "object"},
                       {"properties", std::move(sections)},
                       {"required", {"job", "model", "data", "training"}},
                       {"additionalProperties", false}};
  return schema.dump(2) + "\n";
}

std::string KeysJson(absl::Span<const JobKey* const> keys) {
  Json list = Json::array();
  for (const JobKey* key : keys) {
    const std::vector<std::string> aliases = absl::StrSplit(key->aliases, ' ', absl::SkipEmpty());
    Json one = {{"key", std::string(key->key)},
                {"default", DefaultText(*key)},
                {"meaning", MeaningText(*key)},
                {"mathematics", IsMathematics(key->kind)},
                {"built", key->kind != KeyKind::kNotBuilt},
                {"runs", key->kind != KeyKind::kNotBuilt && !key->planned_only},
                {"aliases", aliases}};
    const bool is_limited = std::isfinite(key->limits.least) || std::isfinite(key->limits.most);
    if (is_limited) one["allowed"] = key->limits.Text();
    list.push_back(std::move(one));
  }
  return list.dump(2) + "\n";
}

}  // namespace weft
