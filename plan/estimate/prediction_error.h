// How far off step times were that the model of plan/estimate predicted for published runs, by
// engine profile and number of GPUs: what a prediction's error bar is made of. The figures are
// printed by bench/fit_constants (bench/README.md, "Error bars"). Pure.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "plan/spec/words.h"

namespace weft {

// Predicted over measured step time: above 1, the run was faster than predicted. Deciles of `rows`
// published runs on from_gpus to to_gpus GPUs.
struct ErrorRow {
  absl::string_view engine;  // EngineProfile::name; never weft, which nobody has measured on GPUs
  int from_gpus = 1;
  int to_gpus = 0;
  int rows = 0;
  double p10 = 1;
  double median = 1;
  double p90 = 1;
};

// Returns the rows of each engine that was measured, ascending, without gaps from 1 GPU on; the
// last of an engine has no end.
inline constexpr int kNoEnd = 0x7fffffff;
absl::Span<const ErrorRow> ErrorRows();

// Bands are as narrow as the data allow: each has so many runs.
inline constexpr int kFewestErrorRows = 20;

// The value below which `share` of the values lie, on a line between neighbours. REQUIRES: values
// is not empty.
double Quantile(std::vector<double> values, double share);

// Where an error bar comes from.
enum class ErrorSource {
  kNone,      // nothing was measured that speaks for the prediction
  kEngine,    // published runs of the very engine profile
  kOthers,    // of all engines that were measured: the engine itself never was
  kRecorded,  // this user's own runs on this hardware (launcher/run/ledger.h)
};

Words WordsOf(ErrorSource);  // "none", "engine", "others", "recorded"

// Eight of ten measured steps took predicted / p90 to predicted / p10.
struct ErrorBar {
  ErrorSource source = ErrorSource::kNone;
  double p10 = 1;
  double median = 1;
  double p90 = 1;
  int runs = 0;
  // These describe what was measured: kEngine, kOthers.
  int from_gpus = 0;
  int to_gpus = 0;
  absl::string_view engine = {};  // kEngine
  bool of_another_kind = false;   // the model has experts, what was measured has none

  bool known() const { return source != ErrorSource::kNone; }
  double least_s(double predicted_s) const { return predicted_s / p90; }
  double most_s(double predicted_s) const { return predicted_s / p10; }
  // Returns how much longer than predicted a step may take: two plans that differ by less may be
  // the other way round.
  double slower_share() const { return 1 / p10 - 1; }
};

// Returns the bar of a plan on so many GPUs under an engine's habits. An engine that was never
// measured gets the widest: the lowest and the highest decile of all that were, on about as many
// GPUs.
ErrorBar PublishedErrorBar(absl::string_view engine, int gpus);

// All published runs that the rows are made of are of dense models. Of models with experts one was
// compared: Qwen3-30B-A3B on 16 H100 by Megatron-Bridge, 9,058 tokens/s a GPU, took 1.24 to 1.41
// times as long as its layouts were predicted.
inline constexpr double kExpertsTookLonger = 1.41;
// Returns the bar of such a model: published dense runs say how far off the rest of it may be.
ErrorBar WidenedForExperts(ErrorBar bar);

// Makes a bar of predicted over measured step times of this user's own runs. Fewer than kFewRuns
// have no deciles: the bar is as wide as the worst of them was off, both ways. No runs: kNone.
inline constexpr int kFewRuns = 5;
ErrorBar RecordedErrorBar(std::vector<double> ratios);

// The median difference of two published runs' predictions is about 3 % (bench/README.md): layouts
// that differ by less are equals as far as predictions can tell.
inline constexpr double kTypicalError = 0.03;

}  // namespace weft
