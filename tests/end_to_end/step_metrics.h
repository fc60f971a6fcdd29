// Tests read here what a run has written to metrics.jsonl: while it goes on, and after any end.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace weft {

struct StepMetrics {
  int64_t step = 0;
  int64_t generation = 0;
  double loss = 0;
  std::string loss_hex;
};

// Returns the metrics of a run folder, in the order of the file: steps may repeat after a crash. A
// line that is half written, or torn by a kill, is left out.
std::vector<StepMetrics> MetricsOf(const std::string& run_folder);
// Last line of each step: step -> loss_hex.
std::map<int64_t, std::string> CurveOf(const std::string& run_folder);

// StepsLost says what the generations after the first `from_line` lines had to do again.
struct StepsLost {
  int64_t steps = 0;
  int64_t at_step = 0;  // the last one before the first of those ends
  // Counts those that were committed before, as events.jsonl tells: none may be.
  int64_t beyond_commits = 0;
};
StepsLost StepsLostFrom(const std::string& run_folder, size_t from_line);

}  // namespace weft
