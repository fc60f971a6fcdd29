#include "launcher/init_weights.h"

#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/manifest.h"
#include "checkpoint/weights_reader.h"
#include "launcher/model_config.h"
#include "launcher/run_folder.h"

namespace weft {

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
  const absl::StatusOr<ModelShape> model = ModelOfStepFolder(folder);
  if (!model.ok()) {
    issues->Add(place, "model.init_from", model.status().message());
    return {};
  }
  return ParseYaml(HuggingFaceConfig(*model), absl::StrCat(folder, "/", kManifestFile), place.order,
                   issues)
      .value_or(YamlNode{});
}

bool NeedsInitWeights(const JobSpec& job, bool fresh) {
  if (job.init_from.empty()) return false;
  std::error_code error;
  return fresh || !std::filesystem::exists(PathsOf(job).resolved(), error);
}

}  // namespace weft
