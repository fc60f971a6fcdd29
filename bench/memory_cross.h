// Cross-validation of the memory model: the habits that were found by looking at measured peaks are
// found again without one model's runs, then held against these.
#pragma once
#include <string>
#include <vector>

#include "bench/accuracy_memory.h"
#include "bench/accuracy_steps.h"
#include "bench/measured_csv.h"

namespace weft {

// These habits are found again: bytes per logit, what eager kernels keep of the feed-forward, the
// context, and the guard, which is what the other runs' estimates fall short by at most.
struct FoundHabits {
  double logit_bytes = 6;
  double unfused_ffn_bytes = 0;
  double context_bytes = 0;
  double guard_share = 0;
};

// Returns the habits of a fixed grid with the least mean absolute error at the peak of `runs`, the
// smaller of equals. Runs that have no peak, or that MemoryQuestionOf refuses, do not count.
// Kernels that a run fuses stay fused.
FoundHabits FindHabits(const std::vector<const MeasuredRun*>& runs);

// The runs of one engine's profile, each predicted by habits found without its model's other runs.
struct CrossValidation {
  std::string engine;
  int models = 0;
  ErrorSummary peak;
  FitCounts fits;  // with the guard found
};
std::vector<CrossValidation> CrossValidateMemory(const MeasuredTable& table);

std::string CrossValidationText(const std::vector<CrossValidation>& results);

}  // namespace weft
