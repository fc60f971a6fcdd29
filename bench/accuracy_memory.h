// This file tells how well the memory model foretells published measurements: bytes between steps
// and at the peak, by source, and whether what it calls fitting does fit.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/measured_csv.h"
#include "plan/estimate/memory_estimate.h"

namespace weft {

// The question that a run answers: its engine is the one that its source says it used, with the
// switches that the row or its notes name (dropout, fused loss, deterministic kernels, ...).
// InvalidArgument: why the run cannot be asked about; the layout breaks a rule, the row is no
// measurement, recordings of it disagree, or it used something that no profile describes.
struct MemoryQuestion {
  Question question;
  Layout layout;  // the run's, with what only its notes say
};
absl::StatusOr<MemoryQuestion> MemoryQuestionOf(const MeasuredRun& run);

struct MemoryPrediction {
  const MeasuredRun* run = nullptr;
  std::string engine;
  MemoryEstimate peak;        // of the stage that was measured, or of the fullest
  int64_t resting_bytes = 0;  // of that stage
  int64_t guard_bytes = 0;    // what the planner would leave free beside it

  // Predicted over measured, minus 1; nullopt where it was not measured.
  std::optional<double> peak_error() const;
  std::optional<double> resting_error() const;
};

// REQUIRES: `run` outlives the result.
MemoryPrediction PredictMemory(const MeasuredRun& run, const MemoryQuestion& asked);

struct MemoryAccuracy {
  std::vector<MemoryPrediction> predictions;
  std::vector<LeftOutRow> left_out;
};

// REQUIRES: `table` outlives the result.
MemoryAccuracy PredictMemory(const MeasuredTable& table);

// Says whether the planner would call it fitting, guard included.
bool Fits(const MemoryPrediction& prediction, int64_t memory_bytes);

// Over runs whose peak was measured, each held against devices of 16 to 192 GiB: how often the
// prediction fits and the run would not have, the other way round, and of how many cases.
struct FitCounts {
  int cases = 0, false_fits = 0, false_misfits = 0;
};
FitCounts CountFits(const std::vector<const MemoryPrediction*>& predictions);

// Layouts for which no success was recorded: how many are called fitting on their hardware, and how
// many with more than a fifth of it to spare.
struct OutOfMemoryCounts {
  int runs = 0, said_to_fit = 0, with_room_to_spare = 0;
};
OutOfMemoryCounts CountOutOfMemory(const MemoryAccuracy& unsuccessful);

// `each_row`: with a line per row.
std::string MemoryAccuracyText(const MemoryAccuracy& accuracy, bool each_row);
std::string OutOfMemoryText(const MemoryAccuracy& successful, const MemoryAccuracy& unsuccessful);
std::string MemoryAccuracyJson(const MemoryAccuracy& accuracy);  // one object

}  // namespace weft
