#include "checkpoint/weights_reader.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/manifest.h"
#include "checkpoint/verify.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"
#include "plan/spec/layout_rules.h"

namespace weft {
namespace {

absl::StatusOr<ModelShape> ModelOf(const std::string& folder, const Manifest& manifest) {
  if (manifest.model) return *manifest.model;
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": its manifest does not state the model; go on with its run once"));
}

// Checks that both have the same tensors, of the same dims.
absl::Status CheckSameTensors(const std::string& folder, const ModelShape& own,
                              const ModelShape& wanted) {
  std::map<std::string, std::vector<int64_t>> left;
  for (const TensorSpec& tensor : Tensors(own)) left[tensor.name] = tensor.dims;
  for (const TensorSpec& tensor : Tensors(wanted)) {
    const auto found = left.find(tensor.name);
    if (found == left.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": holds no ", tensor.name, ", which the model has"));
    }
    if (found->second != tensor.dims) {
      return absl::InvalidArgumentError(
          absl::StrCat(folder, ": ", tensor.name, " is [", absl::StrJoin(found->second, ", "),
                       "], the model's is [", absl::StrJoin(tensor.dims, ", "), "]"));
    }
    left.erase(found);
  }
  if (left.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(folder, ": holds ", left.begin()->first, ", for which the model has no place"));
}

}  // namespace

absl::StatusOr<ModelShape> ModelOfStepFolder(const std::string& folder) {
  ASSIGN_OR_RETURN(const Manifest manifest, CheckManifest(folder));
  return ModelOf(folder, manifest);
}

absl::StatusOr<WeightsReader> WeightsReader::Open(const std::string& folder,
                                                  const ModelShape& model) {
  if (!IsStepFolder(folder)) {
    if (model.num_experts > 0) {
      return absl::InvalidArgumentError(
          "weights of a model with experts cannot be read from a Hugging Face directory yet");
    }
    RETURN_IF_ERROR(FirstIssue(EngineIssues(model)));
    ASSIGN_OR_RETURN(HuggingFaceReader reader, HuggingFaceReader::Open(folder, model));
    return WeightsReader(std::move(reader));
  }
  ASSIGN_OR_RETURN(const Manifest manifest, CheckManifest(folder));
  ASSIGN_OR_RETURN(const ModelShape own, ModelOf(folder, manifest));
  RETURN_IF_ERROR(CheckSameTensors(folder, own, model));
  ASSIGN_OR_RETURN(CheckpointReader reader, CheckpointReader::Open(folder, manifest));
  return WeightsReader(std::move(reader));
}

absl::Status WeightsReader::Read(const TensorSpec& tensor, absl::Span<const int64_t> begin,
                                 absl::Span<const int64_t> end, absl::Span<float> out) const {
  if (const auto* const checkpoint = std::get_if<CheckpointReader>(&reader_)) {
    return checkpoint->Read(tensor.name, tensor.dims, begin, end, out);
  }
  std::get<HuggingFaceReader>(reader_).Read(tensor.name, begin, end, out);
  return absl::OkStatus();
}

}  // namespace weft
