// weft export: a checkpoint's weights in another tool's form.
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/verify.h"
#include "launcher/commands/commands.h"
#include "launcher/inference/checkpoint_target.h"
#include "launcher/machine/machine.h"
#include "plan/block/tensors.h"
#include "plan/errors.h"

namespace weft {
namespace {

// All weights are in memory at once; of one tensor twice.
absl::Status CheckRoom(const ModelShape& model) {
  const int64_t needed = 4 * ParameterCount(model);
  const std::optional<int64_t> available = AvailableMemoryBytes();
  if (!available || needed <= *available) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("memory: the weights take ", needed, " bytes, ", *available, " are free"));
}

absl::StatusOr<FoundCheckpoint> Write(const std::string& target, const std::string& folder) {
  ASSIGN_OR_RETURN(FoundCheckpoint found, FindCheckpoint(target));
  for (const std::string& refused : found.refused)
    std::cerr << "weft: damaged: " << refused << "\n";
  RETURN_IF_ERROR(CheckRoom(*found.manifest.model));
  ASSIGN_OR_RETURN(const CheckpointReader reader,
                   CheckpointReader::Open(found.path, found.manifest));
  RETURN_IF_ERROR(ExportHuggingFace(reader, *found.manifest.model, folder));
  return found;
}

int Export(const std::string& target, const std::string& folder) {
  const absl::StatusOr<FoundCheckpoint> found = Write(target, folder);
  if (!found.ok()) return Fail(found.status());
  std::cout << found->path << "\n  exported    " << folder << "/{config.json,model.safetensors}\n";
  return kExitOk;
}

}  // namespace

void AddExport(CLI::App& app, int* exit_code) {
  struct Arguments {
    std::string target;
    std::string folder;
  };
  const auto arguments = std::make_shared<Arguments>();
  CLI::App* exporting =
      app.add_subcommand("export", "write a checkpoint's weights for other tools");
  exporting
      ->add_option("checkpoint", arguments->target,
                   "a step folder, a checkpoint folder, a run folder or the job file of a run")
      ->required();
  exporting
      ->add_option("--hf", arguments->folder,
                   "a new folder: Hugging Face's config.json and model.safetensors, fp32")
      ->required();
  exporting->callback(
      [arguments, exit_code] { *exit_code = Export(arguments->target, arguments->folder); });
}

}  // namespace weft
