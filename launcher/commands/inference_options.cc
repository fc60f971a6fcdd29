#include "launcher/commands/inference_options.h"

#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
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
                   absl::StrCat("how token files are kept: ", Alternatives(WordsOf(TokenFormat{})),
                                "; default: as the run's"))
      ->check(CLI::IsMember(
          std::vector<std::string>(WordsOf(TokenFormat{}).begin(), WordsOf(TokenFormat{}).end())));
  verb->add_option("--backend", options->backend, "cpu or cuda")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  verb->add_option("--threads", options->threads, "CPU: BLAS threads; default: all cores")
      ->check(WholeNumber(1, 1024));
}

}  // namespace weft
