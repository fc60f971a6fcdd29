// weft export: a checkpoint's weights in another tool's form.
#include <filesystem>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "checkpoint/huggingface.h"
#include "checkpoint/verify.h"
#include "launcher/commands/commands.h"
#include "launcher/inference/checkpoint_target.h"
#include "launcher/inference/export_form.h"
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

struct ExportArguments {
  std::string target;
  std::string folder;
  std::string like;
  std::string dtype;
};

struct Exported {
  FoundCheckpoint found;
  HuggingFaceForm form;
};

absl::StatusOr<Exported> Write(const ExportArguments& arguments) {
  ASSIGN_OR_RETURN(FoundCheckpoint found, FindCheckpoint(arguments.target));
  for (const std::string& refused : found.refused)
    std::cerr << "weft: damaged: " << refused << "\n";
  RETURN_IF_ERROR(CheckRoom(*found.manifest.model));
  ASSIGN_OR_RETURN(const CheckpointReader reader,
                   CheckpointReader::Open(found.path, found.manifest));
  const ModelShape& model = *found.manifest.model;
  const std::string source = arguments.like.empty() ? SourceOf(found.manifest) : arguments.like;
  ASSIGN_OR_RETURN(HuggingFaceForm form, FormLike(source, model, arguments.dtype));
  RETURN_IF_ERROR(ExportHuggingFace(reader, model, arguments.folder, form));
  return Exported{std::move(found), std::move(form)};
}

int Export(const ExportArguments& arguments) {
  const absl::StatusOr<Exported> exported = Write(arguments);
  if (!exported.ok()) return Fail(exported.status());
  std::string files = "config.json,model.safetensors";
  for (const std::string& path : exported->form.besides) {
    absl::StrAppend(&files, ",", std::filesystem::path(path).filename().string());
  }
  std::cout << exported->found.path << "\n  exported    " << arguments.folder << "/{" << files
            << "}, weights of " << exported->form.dtype << "\n";
  return kExitOk;
}

}  // namespace

void AddExport(CLI::App& app, int* exit_code) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* exporting =
      app.add_subcommand("export", "write a checkpoint's weights for other tools");
  exporting
      ->add_option("checkpoint", arguments->target,
                   "a step folder, a checkpoint folder, a run folder or the job file of a run")
      ->required();
  exporting
      ->add_option("--hf", arguments->folder,
                   "a new folder: Hugging Face's config.json and model.safetensors")
      ->required();
  exporting->add_option("--like", arguments->like,
                        "a Hugging Face directory: its model_type, ends of text, number format, "
                        "tokenizer; default: what the run started from");
  exporting->add_option("--dtype", arguments->dtype, "of the weights; default: as --like has them")
      ->check(CLI::IsMember({"float32", "bfloat16", "float16"}));
  exporting->callback([arguments, exit_code] { *exit_code = Export(*arguments); });
}

}  // namespace weft
