#include "tests/end_to_end/step_metrics.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

namespace weft {

std::vector<StepMetrics> MetricsOf(const std::string& run_folder) {
  std::vector<StepMetrics> metrics;
  for (const char* name : {"/metrics.jsonl.1", "/metrics.jsonl"}) {
    std::ifstream lines(run_folder + name);
    for (std::string line; std::getline(lines, line);) {
      const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
      if (json.is_discarded() || !json.contains("loss_hex")) continue;
      metrics.push_back(
          {json.at("step"), json.at("generation"), json.at("loss"), json.at("loss_hex")});
    }
  }
  return metrics;
}

std::map<int64_t, std::string> CurveOf(const std::string& run_folder) {
  std::map<int64_t, std::string> curve;
  for (const StepMetrics& metrics : MetricsOf(run_folder)) curve[metrics.step] = metrics.loss_hex;
  return curve;
}

namespace {

// The last step that a generation before `generation` has committed; 0: none.
int64_t CommittedBefore(const std::string& run_folder, int64_t generation) {
  std::ifstream lines(run_folder + "/events.jsonl");
  int64_t committed = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (json.is_discarded() || json.value("event", "") != "committed") continue;
    if (json.at("generation") < generation) committed = json.at("step");
  }
  return committed;
}

}  // namespace

StepsLost StepsLostFrom(const std::string& run_folder, size_t from_line) {
  const std::vector<StepMetrics> metrics = MetricsOf(run_folder);
  StepsLost lost;
  for (size_t i = std::max<size_t>(from_line, 1); i < metrics.size(); ++i) {
    const StepMetrics &before = metrics[i - 1], &now = metrics[i];
    if (now.generation == before.generation) continue;
    if (lost.at_step == 0) lost.at_step = before.step;
    lost.steps += std::max<int64_t>(0, before.step - now.step + 1);
    const int64_t committed = CommittedBefore(run_folder, now.generation);
    lost.beyond_commits += std::max<int64_t>(0, std::min(committed, before.step) - now.step + 1);
  }
  return lost;
}

}  // namespace weft
