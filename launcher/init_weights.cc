#include "launcher/init_weights.h"

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/huggingface_reader.h"
#include "checkpoint/manifest.h"
#include "launcher/model_config.h"
#include "plan/errors.h"

namespace weft {
namespace {

std::string ManifestOf(const std::string& folder) {
  return absl::StrCat(folder, "/", kManifestFile);
}

absl::StatusOr<ModelShape> ModelOfCheckpoint(const std::string& folder) {
  std::ifstream stream(ManifestOf(folder));
  std::stringstream text;
  text << stream.rdbuf();
  ASSIGN_OR_RETURN(const Manifest manifest, ParseManifest(text.str()));
  if (manifest.model) return *manifest.model;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": its manifest does not state the model; go on with its run once"));
}

}  // namespace

YamlNode ReadConfigOfWeights(const std::string& folder, const Place& place, Issues* issues) {
  if (!IsStepFolder(folder)) {
    std::error_code error;
    if (std::filesystem::exists(folder + "/config.json", error)) {
      return ReadConfigJson(folder, place, issues);
    }
    issues->Add(place, "model.init_from",
                absl::StrCat(folder, " holds neither config.json nor ", kManifestFile,
                             "; name a Hugging Face directory or a step-N folder of a run"));
    return {};
  }
  const absl::StatusOr<ModelShape> model = ModelOfCheckpoint(folder);
  if (!model.ok()) {
    issues->Add(place, "model.init_from", model.status().message());
    return {};
  }
  return ParseYaml(HuggingFaceConfig(*model), ManifestOf(folder), place.order, issues)
      .value_or(YamlNode{});
}

absl::Status CheckWeights(const std::string& folder, const ModelShape& model) {
  if (!IsStepFolder(folder)) {
    if (model.num_experts > 0) {
      return absl::InvalidArgumentError("a model with experts cannot start from weights yet");
    }
    return HuggingFaceReader::Open(folder, model).status();
  }
  ASSIGN_OR_RETURN(const ModelShape own, ModelOfCheckpoint(folder));
  std::map<std::string, std::vector<int64_t>> theirs;
  for (const TensorSpec& tensor : Tensors(own)) theirs[tensor.name] = tensor.dims;
  for (const TensorSpec& tensor : Tensors(model)) {
    const auto found = theirs.find(tensor.name);
    if (found == theirs.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": holds no ", tensor.name, ", which the model has"));
    }
    if (found->second != tensor.dims) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": ", tensor.name, " is [", absl::StrJoin(found->second, ", "),
                       "], the model's is [", absl::StrJoin(tensor.dims, ", "), "]"));
    }
    theirs.erase(found);
  }
  if (theirs.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(folder, ": holds ", theirs.begin()->first,
                                                 ", for which the model has no place"));
}

}  // namespace weft
