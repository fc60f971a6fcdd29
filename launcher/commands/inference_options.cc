#include "launcher/commands/inference_options.h"

#include "absl/status/statusor.h"
#include "launcher/commands/option_checks.h"
#include "launcher/machine/machine.h"

namespace weft {

std::optional<TokenFormat> InferenceOptions::format() const {
  const absl::StatusOr<TokenFormat> named = ParseTokenFormat(format_name);
  return named.ok() ? std::optional(*named) : std::nullopt;
}

int InferenceOptions::blas_threads() const {
  return threads > 0 ? threads : UsableCores();
}

void AddInferenceOptions(CLI::App* verb, InferenceOptions* options) {
  verb->add_option("checkpoint", options->target,
                   "a step folder, a checkpoint folder, a run folder, the job file of a run, or a "
                   "Hugging Face directory")
      ->required();
  verb->add_option("--format", options->format_name,
                   "how token files are kept: bytes, llmc or nanogpt; default: as the run's")
      ->check(CLI::IsMember({"bytes", "llmc", "nanogpt"}));
  verb->add_option("--backend", options->backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  verb->add_option("--threads", options->threads, "CPU: BLAS threads; default: all cores")
      ->check(WholeNumber(1, 1024));
}

}  // namespace weft
