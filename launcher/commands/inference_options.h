// weft eval and weft generate share these options: which weights, how data is kept, where to
// compute.
#pragma once
#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "plan/spec/job_spec.h"

namespace weft {

struct InferenceOptions {
  std::string target;  // for FindWeights
  std::string format_name;
  std::string backend = "cpu";
  int threads = 0;  // 0: all cores

  std::optional<TokenFormat> format() const;  // nullopt: as the run
  int blas_threads() const;
};

// `options` has to stay while `verb` parses.
void AddInferenceOptions(CLI::App* verb, InferenceOptions* options);

}  // namespace weft
