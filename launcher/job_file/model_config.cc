#include "launcher/job_file/model_config.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "data/whole_file.h"
#include "launcher/job_file/yaml_tree.h"
#include "plan/keys/model_keys.h"
#include "text/json.h"

namespace weft {

Value ReadConfigJson(const std::string& path, const Place& place, Issues* issues) {
  std::error_code error;
  std::string file = path;
  if (std::filesystem::is_directory(path, error)) {
    file = (std::filesystem::path(path) / "config.json").string();
  }
  const absl::StatusOr<std::string> text = ReadWholeFile(file, kMostSpecBytes);
  if (!text.ok()) {
    issues->Add(place, "model.path",
                absl::StrCat(text.status().message(),
                             "; expected a config.json or a folder that holds one"));
    return {};
  }
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
  return ParseYaml(*text, file, place.order, issues).value_or(Value{});
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
  const Value* const window = config.Find(kAttentionWindow);
  if (window == nullptr || model.family != ModelFamily::kLlama) return model;
  model.max_positions =
      std::min(model.max_positions, ParseWholeNumber(window->scalar).value_or(model.max_positions));
  return model;
}

}  // namespace weft
