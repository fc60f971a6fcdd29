#include "bench/memory_cross.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

struct Asked {
  const MeasuredRun* run = nullptr;
  MemoryQuestion question;
};

MemoryPrediction PredictWith(const FoundHabits& found, const Asked& asked) {
  MemoryQuestion question = asked.question;
  MemoryHabits& habits = question.question.engine.memory;
  habits.logit_bytes = found.logit_bytes;
  if (habits.unfused_ffn_bytes > 0) habits.unfused_ffn_bytes = found.unfused_ffn_bytes;
  habits.context_bytes = found.context_bytes;
  habits.guard_share = found.guard_share;
  return PredictMemory(*asked.run, question);
}

double MeanError(const FoundHabits& found, const std::vector<const Asked*>& runs) {
  double sum = 0;
  for (const Asked* run : runs) sum += std::abs(*PredictWith(found, *run).peak_error());
  return sum / static_cast<double>(runs.size());
}

FoundHabits Find(const std::vector<const Asked*>& runs) {
  FoundHabits found;
  if (runs.empty()) return found;
  double least = std::numeric_limits<double>::infinity();
  for (const double context : {0, 50, 100, 200, 400, 800, 1600, 3200, 6400, 9000, 12800}) {
    for (const double logit : {4, 6, 8, 10, 12, 14, 16}) {
      for (const double unfused : {0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0}) {
        const FoundHabits tried = {
            .logit_bytes = logit, .unfused_ffn_bytes = unfused, .context_bytes = context * kMiB};
        const double error = MeanError(tried, runs);
        if (error >= least) continue;
        least = error;
        found = tried;
      }
    }
  }
  for (const Asked* run : runs) {
    found.guard_share = std::max(found.guard_share, -*PredictWith(found, *run).peak_error());
  }
  // The guard is a share of the estimate, not of what was measured.
  found.guard_share /= 1 - std::min(0.9, found.guard_share);
  return found;
}

std::vector<Asked> WithPeaks(const std::vector<const MeasuredRun*>& runs) {
  std::vector<Asked> all;
  for (const MeasuredRun* run : runs) {
    absl::StatusOr<MemoryQuestion> question = MemoryQuestionOf(*run);
    if (question.ok() && run->peak_bytes) all.push_back({run, *std::move(question)});
  }
  return all;
}

CrossValidation Validate(const std::string& engine, const std::vector<Asked>& runs) {
  std::map<std::string, std::vector<const Asked*>> by_model;
  for (const Asked& run : runs) by_model[run.run->model].push_back(&run);
  CrossValidation result;
  result.engine = engine;
  result.models = static_cast<int>(by_model.size());
  std::vector<MemoryPrediction> predictions;
  for (const auto& [model, held_out] : by_model) {
    std::vector<const Asked*> others;
    for (const Asked& run : runs) {
      if (run.run->model != model) others.push_back(&run);
    }
    const FoundHabits found = Find(others);
    for (const Asked* run : held_out) predictions.push_back(PredictWith(found, *run));
  }
  std::vector<double> errors;
  std::vector<const MemoryPrediction*> all;
  for (const MemoryPrediction& prediction : predictions) {
    errors.push_back(*prediction.peak_error());
    all.push_back(&prediction);
  }
  result.peak = Summarize(std::move(errors));
  result.fits = CountFits(all);
  return result;
}

}  // namespace

FoundHabits FindHabits(const std::vector<const MeasuredRun*>& runs) {
  const std::vector<Asked> asked = WithPeaks(runs);
  std::vector<const Asked*> all;
  all.reserve(asked.size());
  for (const Asked& run : asked) all.push_back(&run);
  return Find(all);
}

std::vector<CrossValidation> CrossValidateMemory(const MeasuredTable& table) {
  std::map<std::string, std::vector<const MeasuredRun*>> by_engine;
  for (const MeasuredRun& run : table.runs) {
    by_engine[std::string{EngineOf(run.source)}].push_back(&run);
  }
  std::vector<CrossValidation> results;
  for (const auto& [engine, runs] : by_engine) {
    const std::vector<Asked> asked = WithPeaks(runs);
    if (!asked.empty()) results.push_back(Validate(engine, asked));
  }
  return results;
}

std::string CrossValidationText(const std::vector<CrossValidation>& results) {
  std::string text =
      "memory at the peak, each model by habits found on the other models of its profile:\n";
  for (const CrossValidation& result : results) {
    absl::StrAppendFormat(
        &text,
        "  %-20s %2d models, %4d rows: mean %6.2f %%  median %6.2f %%  p90 %6.2f %%  max %6.2f %%\n"
        "    %d false fits, %d false misfits of %d cases\n",
        result.engine, result.models, result.peak.count, 100 * result.peak.mape,
        100 * result.peak.median, 100 * result.peak.p90, 100 * result.peak.max,
        result.fits.false_fits, result.fits.false_misfits, result.fits.cases);
  }
  return text;
}

}  // namespace weft
