#include "tests/end_to_end/step_metrics.h"

#include <fstream>
#include <nlohmann/json.hpp>

namespace weft {

std::vector<StepMetrics> MetricsOf(const std::string& run_folder) {
  std::ifstream lines(run_folder + "/metrics.jsonl");
  std::vector<StepMetrics> metrics;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() || !json.contains("loss_hex")) continue;
    metrics.push_back(
        {json.at("step"), json.at("generation"), json.at("loss"), json.at("loss_hex")});
  }
  return metrics;
}

std::map<int64_t, std::string> CurveOf(const std::string& run_folder) {
  std::map<int64_t, std::string> curve;
  for (const StepMetrics& metrics : MetricsOf(run_folder)) curve[metrics.step] = metrics.loss_hex;
  return curve;
}

}  // namespace weft
