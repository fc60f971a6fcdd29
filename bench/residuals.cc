#include "bench/residuals.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {

bool IsFitRow(const MeasuredRun& run) {
  // Functional tests run deterministic kernels, sum weight gradients apart, and few are no toys.
  if (run.tier == "C" || absl::StrContains(run.source, "functional_tests")) return false;
  return !absl::StrContains(run.source, "nanotron") || run.gpus <= 16;
}

std::vector<ErrorRow> ErrorRowsOf(const std::vector<StepPrediction>& predictions) {
  std::vector<ErrorRow> rows;
  for (const ErrorRow& band : ErrorRows()) {
    std::vector<double> ratios;
    for (const StepPrediction& prediction : predictions) {
      const MeasuredRun& run = *prediction.run;
      if (!IsFitRow(run) || EngineOf(run.source) != band.engine) continue;
      if (run.gpus < band.from_gpus || run.gpus > band.to_gpus) continue;
      ratios.push_back(prediction.time.total_s() / *run.step_s);
    }
    ErrorRow row = band;
    row.rows = static_cast<int>(ratios.size());
    if (!ratios.empty()) {
      row.p10 = Quantile(ratios, 0.1);
      row.median = Quantile(ratios, 0.5);
      row.p90 = Quantile(ratios, 0.9);
    }
    rows.push_back(row);
  }
  return rows;
}

std::string ErrorRowsText(absl::string_view heading, const std::vector<ErrorRow>& rows) {
  std::string text = absl::StrCat(heading, "\n");
  absl::StrAppendFormat(&text, "%-20s %-12s %6s %7s %7s %7s\n", "engine profile", "GPUs", "rows",
                        "p10", "median", "p90");
  for (const ErrorRow& row : rows) {
    const std::string gpus = row.to_gpus == kNoEnd ? absl::StrCat(row.from_gpus, " or more")
                                                   : absl::StrCat(row.from_gpus, "-", row.to_gpus);
    absl::StrAppendFormat(&text, "%-20s %-12s %6d", row.engine, gpus, row.rows);
    if (row.rows > 0) {
      absl::StrAppendFormat(&text, " %7.3f %7.3f %7.3f", row.p10, row.median, row.p90);
    }
    text += "\n";
  }
  return text;
}

}  // namespace weft
