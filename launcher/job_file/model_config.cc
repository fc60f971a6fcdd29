#include "launcher/job_file/model_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "data/whole_file.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/errors.h"
#include "plan/keys/config_json.h"
#include "plan/keys/model_keys.h"
#include "plan/keys/model_types.h"
#include "text/json.h"

namespace weft {

namespace {

// Python's json writes numbers that JSON does not have: Infinity, -Infinity, NaN. They become null,
// as long as they were.
std::string WithoutInfinities(const std::string& text) {
  std::string plain = text;
  bool in_text = false;
  for (size_t at = 0; at < plain.size(); ++at) {
    if (plain[at] == '"') in_text = !in_text;
    if (in_text && plain[at] == '\\') ++at;
    if (in_text || at >= plain.size()) continue;
    for (const absl::string_view word : {"-Infinity", "Infinity", "NaN"}) {
      if (!absl::StartsWith(absl::string_view(plain).substr(at), word)) continue;
      std::string null = "null";
      null.resize(std::max(word.size(), null.size()), ' ');
      plain.replace(at, word.size(), null);
      break;
    }
  }
  return plain;
}

}  // namespace

Value ReadConfigJson(const std::string& path, const Place& place, Issues* issues) {
  std::error_code error;
  std::string file = path;
  if (std::filesystem::is_directory(path, error)) {
    file = (std::filesystem::path(path) / "config.json").string();
  }
  absl::StatusOr<std::string> text = ReadWholeFile(file, kMostSpecBytes);
  if (!text.ok()) {
    issues->Add(place, "model.path",
                absl::StrCat(text.status().message(),
                             "; expected a config.json or a folder that holds one"));
    return {};
  }
  *text = WithoutInfinities(*text);
  // YAML reads any JSON and keeps line numbers; JSON's own parser is the judge of what is JSON.
  const absl::StatusOr<nlohmann::json> json = ParseJson(*text, {.most_bytes = kMostSpecBytes});
  if (!json.ok()) {
    issues->Add({file, 0, 0}, "model.path",
                absl::StrCat(json.status().message(), "; expected a config.json"));
    return {};
  }
  if (!json->is_object()) {
    issues->Add({file, 0, 1}, "model.path", "not a config.json: expected one object { ... }");
    return {};
  }
  Issues own;
  const std::optional<Value> config = ParseYaml(*text, file, place.order, &own);
  // Where nothing is read, the key that is wrong is the one that names the file: no rule of the
  // model's keys says more.
  for (const Issue& issue : own.all()) {
    issues->Add(issue.place, config ? issue.key : "model.path", issue.message);
  }
  return config.value_or(Value{});
}

absl::StatusOr<ModelShape> ModelOfDirectory(const std::string& folder) {
  Issues issues;
  Value config = ReadConfigJson(folder, Place{folder}, &issues);
  for (const absl::string_view key : DropoutKeys()) config.Remove(key);
  std::vector<std::string> notes;
  ModelShape model;
  const ModelUse use = {.is_pretrained = true};
  if (config.is_map()) {
    model = ReadModel(Value::Map(Place{folder}), &config, use, &issues, &notes);
  }
  if (!issues.empty()) return absl::InvalidArgumentError(issues.Text());
  const absl::Status valid = CheckModel(model);
  if (!valid.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(folder, "/config.json: ", valid.message()));
  }
  return model;
}

absl::string_view WrapperOf(const ModelShape& model) {
  return TypeOf(ArchitectureOf(model)).wrapper;
}

}  // namespace weft
