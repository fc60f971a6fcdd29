#include "launcher/inference/checkpoint_target.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/verify.h"
#include "launcher/job_file/hub_cache.h"
#include "launcher/job_file/model_config.h"
#include "launcher/run/run_folder.h"
#include "plan/errors.h"
#include "plan/memory/inference_memory.h"
#include "plan/spec/checkpoint_folder.h"

namespace weft {
namespace {

bool Exists(const std::string& path) {
  std::error_code error;
  return std::filesystem::exists(path, error);
}

absl::StatusOr<FoundCheckpoint> Step(const std::string& folder) {
  FoundCheckpoint found;
  std::error_code error;
  found.path = std::filesystem::absolute(folder, error).lexically_normal().string();
  if (absl::EndsWith(found.path, "/")) found.path.pop_back();
  absl::StatusOr<Manifest> manifest = VerifyCheckpoint(found.path);
  if (!manifest.ok()) {
    return absl::Status(manifest.status().code(),
                        absl::StrCat(folder, ": ", manifest.status().message()));
  }
  found.manifest = *std::move(manifest);
  return found;
}

absl::StatusOr<FoundCheckpoint> Newest(const std::string& folder) {
  ASSIGN_OR_RETURN(FoundCheckpoint found, NewestCheckpoint(folder));
  if (!found.path.empty()) return found;
  if (!found.refused.empty()) {
    return absl::DataLossError(absl::StrCat(
        folder, ": no checkpoint here can be used: ", absl::StrJoin(found.refused, "; ")));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no checkpoint in ", folder,
                   "; name a step folder, a checkpoint folder, a run folder or the job file of a "
                   "run"));
}

// Returns the checkpoint folder of a run folder that may have been moved: it is where resolved.yaml
// says, seen from where the run folder lies now.
absl::StatusOr<std::string> CheckpointFolderOf(const std::string& target) {
  ASSIGN_OR_RETURN(const RunPaths paths, FindRun(target));
  ASSIGN_OR_RETURN(const std::optional<PreviousRun> run, ReadPrevious(paths));
  if (!run) {
    return absl::InvalidArgumentError(
        absl::StrCat("no checkpoint in ", paths.folder, ": the run has not begun to train"));
  }
  return CheckpointFolder(run->job.checkpoint, paths.folder);
}

absl::StatusOr<FoundCheckpoint> Find(const std::string& target) {
  std::error_code error;
  if (!Exists(target)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no such file or folder: ", target,
                     "; name a step folder, a checkpoint folder, a run folder or the job file of a "
                     "run"));
  }
  if (Exists(absl::StrCat(target, "/", kManifestFile))) return Step(target);
  if (!std::filesystem::is_directory(target, error) || Exists(target + "/resolved.yaml")) {
    ASSIGN_OR_RETURN(const std::string folder, CheckpointFolderOf(target));
    return Newest(folder);
  }
  return Newest(target);
}

absl::Status Missing(const Manifest& manifest, absl::string_view fact) {
  return absl::DataLossError(
      absl::StrCat("step-", manifest.step, ": its manifest does not state ", fact));
}

absl::Status ReadCount(const Manifest& manifest, const std::string& fact, int64_t* value) {
  const auto found = manifest.facts.find(fact);
  if (found == manifest.facts.end() || !absl::SimpleAtoi(found->second, value) || *value < 0) {
    return Missing(manifest, fact);
  }
  return absl::OkStatus();
}

bool IsTrue(const Manifest& manifest, const std::string& fact) {
  const auto found = manifest.facts.find(fact);
  return found != manifest.facts.end() && found->second == "true";
}

absl::Status ReadDocuments(const Manifest& manifest, CheckpointData* data) {
  data->reset_attention_mask = IsTrue(manifest, "data.reset_attention_mask");
  data->reset_position_ids = IsTrue(manifest, "data.reset_position_ids");
  const std::pair<std::string, std::optional<int64_t>*> marks[] = {
      {"data.bos_token_id", &data->bos_token_id}, {"data.eos_token_id", &data->eos_token_id}};
  for (const auto& [fact, id] : marks) {
    if (manifest.facts.count(fact) > 0) RETURN_IF_ERROR(ReadCount(manifest, fact, &id->emplace()));
  }
  return absl::OkStatus();
}

std::vector<std::string> Listed(const Manifest& manifest, absl::string_view list) {
  std::vector<std::string> values;
  for (auto found = manifest.facts.end();; values.push_back(found->second)) {
    found = manifest.facts.find(absl::StrCat(list, "[", values.size(), "]"));
    if (found == manifest.facts.end()) return values;
  }
}

bool IsHuggingFace(const std::string& target) {
  return Exists(target + "/config.json") && !Exists(absl::StrCat(target, "/", kManifestFile)) &&
         !Exists(target + "/resolved.yaml");
}

absl::StatusOr<CheckpointData> DataOfRun(const Manifest& manifest) {
  CheckpointData data;
  const auto format = manifest.facts.find("data.format");
  if (format == manifest.facts.end()) return Missing(manifest, "data.format");
  ASSIGN_OR_RETURN(data.format, ParseTokenFormat(format->second));
  if (const auto dtype = manifest.facts.find("data.dtype"); dtype != manifest.facts.end()) {
    ASSIGN_OR_RETURN(data.dtype, ParseTokenDtype(dtype->second));
  }
  RETURN_IF_ERROR(ReadDocuments(manifest, &data));
  RETURN_IF_ERROR(ReadCount(manifest, "training.seq_len", &data.seq_len));
  RETURN_IF_ERROR(ReadCount(manifest, "training.global_batch_size", &data.global_batch_size));
  RETURN_IF_ERROR(ReadCount(manifest, "training.micro_batch_size", &data.micro_batch_size));
  if (data.seq_len < 1 || data.global_batch_size < 1 || data.micro_batch_size < 1) {
    return Missing(manifest, "a batch that can be");
  }
  if (manifest.facts.count("validation.steps") > 0) {
    RETURN_IF_ERROR(ReadCount(manifest, "validation.steps", &data.validation_steps));
  }
  data.files = Listed(manifest, "data.valid");
  if (!data.files.empty()) return data;
  const auto split = manifest.facts.find("data.split");
  if (split == manifest.facts.end() || !absl::SimpleAtod(split->second, &data.split)) {
    return Missing(manifest, "data.split");
  }
  if (data.split > 0) data.files = Listed(manifest, "data.train");
  return data;
}

absl::StatusOr<FoundWeights> AnyWeights(const std::string& given) {
  FoundWeights weights;
  ASSIGN_OR_RETURN(const std::string target, LocalModel(given, given));
  if (IsHuggingFace(target)) {
    std::error_code error;
    weights.path = std::filesystem::absolute(target, error).lexically_normal().string();
    if (absl::EndsWith(weights.path, "/")) weights.path.pop_back();
    ASSIGN_OR_RETURN(weights.model, ModelOfDirectory(weights.path));
    return weights;
  }
  ASSIGN_OR_RETURN(FoundCheckpoint found, FindCheckpoint(target));
  weights.path = std::move(found.path);
  weights.model = *found.manifest.model;
  weights.manifest = std::move(found.manifest);
  weights.refused = std::move(found.refused);
  return weights;
}

}  // namespace

absl::StatusOr<FoundCheckpoint> FindCheckpoint(const std::string& target) {
  ASSIGN_OR_RETURN(FoundCheckpoint found, Find(target));
  if (found.manifest.model) return found;
  return absl::InvalidArgumentError(
      absl::StrCat(found.path,
                   ": its manifest is of format 2, which does not state the model; go "
                   "on with weft run, its next checkpoint does"));
}

absl::StatusOr<FoundWeights> FindWeights(const std::string& target) {
  ASSIGN_OR_RETURN(FoundWeights weights, AnyWeights(target));
  const absl::Status runs = CheckInference(weights.model);
  if (runs.ok()) return weights;
  return absl::Status(runs.code(), absl::StrCat(weights.path, ": ", runs.message()));
}

absl::StatusOr<CheckpointData> DataOf(const FoundWeights& found, const DataChoice& choice) {
  constexpr int64_t kLongest = 1024;
  CheckpointData data;
  data.seq_len = std::min(found.model.max_positions, kLongest);
  if (found.manifest) {
    ASSIGN_OR_RETURN(data, DataOfRun(*found.manifest));
  }
  if (choice.format) data.format = choice.format;
  if (choice.dtype) data.dtype = choice.dtype;
  data.seq_len = choice.seq_len.value_or(data.seq_len);
  if (data.seq_len <= found.model.max_positions) return data;
  return absl::InvalidArgumentError(
      absl::StrCat("--seq-len: found ", data.seq_len, ", the model has ", found.model.max_positions,
                   " positions; use 1 to ", found.model.max_positions));
}

std::string PathOf(absl::string_view fingerprint) {
  return absl::StrCat(fingerprint.substr(0, fingerprint.rfind(' ')));
}

}  // namespace weft
