// The rows of plan/estimate/prediction_error.h, made anew: deciles of predicted over measured step
// time by engine profile and number of GPUs.
#pragma once
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "bench/accuracy_steps.h"
#include "plan/estimate/prediction_error.h"

namespace weft {

// Tiers A and B, but for functional tests, and for nodes beyond the second of a cluster whose
// network is known to give a fraction of its nominal rate: what constants are fitted to, and what
// speaks for an error bar.
bool IsFitRow(const MeasuredRun& run);

// Deciles of `predictions` of IsFitRow in the bands of ErrorRows, in its order; bands without
// a row have 0 rows.
std::vector<ErrorRow> ErrorRowsOf(const std::vector<StepPrediction>& predictions);

// Makes a table of them for people, `heading` above it.
std::string ErrorRowsText(absl::string_view heading, const std::vector<ErrorRow>& rows);

}  // namespace weft
