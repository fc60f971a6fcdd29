// This file tells how well the time model foretells published step times: errors by source, and
// whether it would have chosen the fastest of the layouts that were measured.
#pragma once
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/measured_csv.h"
#include "plan/engine/constants.h"
#include "plan/estimate/step_estimate.h"

namespace weft {

// The engine whose habits a source's runs have, by the engine that the source says it used.
absl::string_view EngineOf(absl::string_view source);

// Returns what the time model is asked about a run. NotFound: unknown hardware; InvalidArgument: a
// layout that breaks the rules.
absl::StatusOr<Question> QuestionOf(const TimeConstants& constants, const MeasuredRun& run);

struct StepPrediction {
  const MeasuredRun* run = nullptr;
  TermSeconds time;

  // Predicted over measured, minus 1.
  double error() const { return time.total_s() / *run->step_s - 1; }
};

// The figures are of absolute errors; bias is the signed mean. Zeros for no errors.
struct ErrorSummary {
  int count = 0;
  double mape = 0, median = 0, p90 = 0, max = 0, bias = 0;
};
ErrorSummary Summarize(std::vector<double> errors);

// Groups of at least `kFewestLayouts` layouts of one model, batch, sequence, source and number of
// GPUs. Regret: the measured time of the layout predicted fastest over the best measured, minus 1.
// Tau: Kendall's rank correlation (tau-b).
inline constexpr int kFewestLayouts = 4;
struct ChoiceSummary {
  int groups = 0;
  double mean_regret = 0, max_regret = 0, mean_tau = 0;
};
ChoiceSummary Choices(const std::vector<StepPrediction>& predictions);

struct StepAccuracy {
  std::vector<StepPrediction> predictions;
  std::vector<LeftOutRow> left_out;
};

// REQUIRES: `table` outlives the result.
StepAccuracy PredictSteps(const TimeConstants& constants, const MeasuredTable& table);

std::string StepAccuracyText(const StepAccuracy& accuracy);
std::string StepAccuracyJson(const StepAccuracy& accuracy);  // one object

}  // namespace weft
