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

}  // namespace weft
