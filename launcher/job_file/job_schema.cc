#include "launcher/job_file/job_schema.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "plan/keys/cluster_keys.h"
#include "plan/keys/key_names.h"
#include "plan/keys/model_keys.h"
#include "text/json.h"

namespace weft {
namespace {

using Json = nlohmann::ordered_json;
using Kind = FieldForm::Kind;

constexpr absl::string_view kAuto[] = {"auto"};

constexpr char kProperties[] = "properties";
constexpr char kAnyOf[] = "anyOf";

Json StringsOf(absl::Span<const absl::string_view> words) {
  Json strings = Json::array();
  for (const absl::string_view word : words) strings.push_back(std::string(word));
  return strings;
}

// The values of a list that is separated by spaces: "false 0 text".
Json ValuesOf(absl::string_view list) {
  Json values = Json::array();
  for (absl::string_view word : absl::StrSplit(list, ' ', absl::SkipEmpty())) {
    values.push_back(ParseOrderedJson(word).value_or(std::string(word)));
  }
  return values;
}

// A regular expression of the words in capitals or not, as schemas have no flag for that:
// "^([bB][fF]16|[fF][pP]32)$".
std::string AnyCase(absl::Span<const absl::string_view> words) {
  std::string pattern = "^(";
  for (const absl::string_view word : words) {
    if (pattern.back() != '(') pattern += '|';
    for (const char c : word) {
      const auto letter = static_cast<unsigned char>(c);
      if (absl::ascii_isalpha(letter)) {
        absl::StrAppend(&pattern, "[", std::string(1, absl::ascii_tolower(letter)),
                        std::string(1, absl::ascii_toupper(letter)), "]");
      } else {
        pattern += c;
      }
    }
  }
  return pattern + ")$";
}

// First weft's own words, which an editor offers.
Json WordSchema(Words words) {
  std::vector<absl::string_view> all(words.begin(), words.end());
  for (const absl::string_view other : OtherWords(words)) all.push_back(other);
  return {{kAnyOf, Json::array({{{"enum", StringsOf(words)}},
                                {{"type", "string"}, {"pattern", AnyCase(all)}}})}};
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
      return WordSchema(words);
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

// Nothing (null) is the default of every key.
Json FormSchema(const FieldForm& form, const Limits& limits, bool may_be_auto) {
  Json schema = TypeOf(form.kind, form.words);
  if (form.items) {
    // The words of a list's items are read as they are.
    schema["items"] = *form.items == Kind::kWord ? Json{{"enum", StringsOf(form.words)}}
                                                 : TypeOf(*form.items, form.words);
    AddLimits(limits, schema["items"]);
    if (form.may_be_text) {
      schema["items"] = {{kAnyOf, Json::array({schema["items"], {{"type", "string"}}})}};
    }
  } else {
    AddLimits(limits, schema);
  }
  Json any = Json::array({std::move(schema), {{"type", "null"}}});
  if (may_be_auto) any.push_back(WordSchema(kAuto));
  if (form.may_be_text) any.push_back({{"type", "string"}});
  if (!form.pattern.empty()) {
    any.push_back({{"type", "string"}, {"pattern", std::string(form.pattern)}});
  }
  if (!form.other_word.empty()) any.push_back({{"const", std::string(form.other_word)}});
  return {{kAnyOf, std::move(any)}};
}

// The field of a job that has every part.
FieldForm FormOfKey(const JobKey& key) {
  JobSpec job;
  job.lora.emplace();
  if (key.key == "cluster.gpus_per_node") job.cluster.device.backend = BackendKind::kCuda;
  return FormOf(key.field(job));
}

// A section that may be left empty.
Json Section() {
  return {{"type", Json::array({"object", "null"})},
          {kProperties, Json::object()},
          {"additionalProperties", false}};
}

// Returns the properties of a section, which it becomes where nothing is there. One name may be a
// key's in one system and a section's in another (`tokens`).
Json& PropertiesOf(Json& schema) {
  if (schema.is_null()) schema = Section();
  if (schema.contains(kProperties)) return schema[kProperties];
  if (!schema.contains(kAnyOf)) {
    Json leaf = std::exchange(schema, Json::object());
    schema[kAnyOf] = Json::array({std::move(leaf), Section()});
  }
  return schema[kAnyOf].back()[kProperties];
}

// Returns the schema of a dotted key, in sections that it makes on the way.
Json& SchemaAt(Json& properties, absl::string_view dotted) {
  const size_t dot = dotted.find('.');
  Json& schema = properties[std::string(dotted.substr(0, dot))];
  if (dot == absl::string_view::npos) return schema;
  return SchemaAt(PropertiesOf(schema), dotted.substr(dot + 1));
}

// Makes the dotted key, and each section on its way, one that has to be there.
void Require(Json& section, absl::string_view dotted) {
  const size_t dot = dotted.find('.');
  const std::string name(dotted.substr(0, dot));
  Json& required = section["required"];
  if (std::find(required.begin(), required.end(), name) == required.end()) {
    required.push_back(name);
  }
  if (dot != absl::string_view::npos) {
    Require(section[kProperties][name], dotted.substr(dot + 1));
  }
}

// A profile inside the job file; else it is a name or a path.
Json ProfileSchema() {
  Json profile = Section();
  profile["type"] = "object";
  for (const ClusterKeyForm& key : ClusterKeyForms()) {
    SchemaAt(profile[kProperties], key.name) = FormSchema(key.form, {}, /*may_be_auto=*/false);
    if (key.needed) Require(profile, key.name);
  }
  return {{kAnyOf, Json::array({{{"type", "string"}}, {{"type", "null"}}, std::move(profile)})}};
}

Json KeySchema(const JobKey& key) {
  Json schema = Json::object();
  if (key.key == "cluster.profile") {
    schema = ProfileSchema();
  } else if (key.field != nullptr) {
    const FieldForm form = FormOfKey(key);
    schema = FormSchema(form, key.limits, form.may_be_auto || key.otherwise == "auto");
  } else if (key.kind == KeyKind::kNotBuilt) {
    Json accepted = ValuesOf(key.otherwise);
    accepted.insert(accepted.begin(), nullptr);
    schema = {{"enum", std::move(accepted)}};
  }
  schema["description"] = absl::StrCat(MeaningText(key), "; default: ", DefaultText(key));
  return schema;
}

void AddModelKeys(Json& model) {
  for (const ModelKeyForm& key : ModelKeyForms()) {
    Json schema = Json::object();
    if (key.form) {
      schema = FormSchema(*key.form, {}, /*may_be_auto=*/false);
    } else if (!key.values.empty()) {
      Json values = ValuesOf(key.values);
      values.push_back(nullptr);
      schema = {{"enum", std::move(values)}};
    } else {
      schema["description"] = "of a published config.json; ignored";
    }
    if (!key.read_as.empty()) schema["description"] = absl::StrCat("read as ", key.read_as);
    model[kProperties].emplace(key.name, std::move(schema));
  }
  model["patternProperties"] = {{"^_", Json::object()}};
}

// "#/properties/training/properties/steps"
std::string PointerTo(absl::string_view key) {
  return absl::StrCat("#/properties/", absl::StrReplaceAll(key, {{".", "/properties/"}}));
}

void AddAliases(Json& properties) {
  for (const auto& [alias, key] : KeyAliases()) {
    SchemaAt(properties, alias) = {{"$ref", PointerTo(key)},
                                   {"description", absl::StrCat("read as ", key)}};
  }
}

// One of these names has to stand at the top for the section to have what it needs: its own, or
// that of a key or section of another system.
Json NamesOf(absl::string_view section) {
  std::set<std::string> names = {std::string(section)};
  for (const auto& [alias, key] : KeyAliases()) {
    if (absl::StartsWith(key, absl::StrCat(section, "."))) {
      names.insert(alias.substr(0, alias.find('.')));
    }
  }
  Json any = Json::array();
  for (const std::string& name : names) any.push_back({{"required", Json::array({name})}});
  return {{kAnyOf, std::move(any)}};
}

}  // namespace

std::string JobSchema() {
  Json properties = Json::object();
  for (const JobKey& key : JobKeys()) SchemaAt(properties, key.key) = KeySchema(key);
  AddModelKeys(properties["model"]);
  AddAliases(properties);
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "weft job.yaml"},
                       {"type", "object"},
                       {kProperties, std::move(properties)},
                       {"allOf", Json::array({NamesOf("job"), NamesOf("model"), NamesOf("data"),
                                              NamesOf("training")})},
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
