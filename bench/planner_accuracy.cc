// planner_accuracy --steps FILE.csv --memory FILE.csv [--oom FILE.csv] [--json] [--rows] [--cross]
// Holds the planner's estimates against published measurements (bench/README.md has the columns and
// the figures). Works on any file with these columns. Exit 2: a file cannot be read.
#include <cstdio>
#include <string>

#include "CLI/CLI.hpp"
#include "bench/accuracy_memory.h"
#include "bench/accuracy_steps.h"
#include "bench/measured_csv.h"
#include "bench/memory_cross.h"
#include "plan/errors.h"

namespace weft {
namespace {

struct Files {
  std::string steps, memory, oom;
  bool json = false;
  bool rows = false;
  bool cross = false;
};

absl::StatusOr<std::string> StepsReport(const Files& files) {
  MeasuredTable table;
  ASSIGN_OR_RETURN(table, ReadMeasured(files.steps));
  const StepAccuracy accuracy = PredictSteps(FittedTimeConstants(), table);
  return files.json ? "\"steps\":" + StepAccuracyJson(accuracy) : StepAccuracyText(accuracy);
}

absl::StatusOr<std::string> MemoryReport(const Files& files) {
  MeasuredTable table;
  ASSIGN_OR_RETURN(table, ReadMeasured(files.memory));
  const MemoryAccuracy accuracy = PredictMemory(table);
  std::string report = files.json ? "\"memory\":" + MemoryAccuracyJson(accuracy)
                                  : MemoryAccuracyText(accuracy, files.rows);
  if (files.cross && !files.json) report += CrossValidationText(CrossValidateMemory(table));
  if (files.oom.empty()) return report;
  MeasuredTable unsuccessful;
  ASSIGN_OR_RETURN(unsuccessful, ReadMeasured(files.oom));
  const MemoryAccuracy without = PredictMemory(unsuccessful);
  if (!files.json) return report + OutOfMemoryText(accuracy, without);
  const OutOfMemoryCounts counts = CountOutOfMemory(without);
  return report + ",\"oom\":{\"runs\":" + std::to_string(counts.runs) +
         ",\"said_to_fit\":" + std::to_string(counts.said_to_fit) +
         ",\"with_room_to_spare\":" + std::to_string(counts.with_room_to_spare) + "}";
}

absl::Status Run(const Files& files) {
  std::string all;
  if (!files.steps.empty()) {
    ASSIGN_OR_RETURN(all, StepsReport(files));
  }
  if (!files.memory.empty()) {
    std::string memory;
    ASSIGN_OR_RETURN(memory, MemoryReport(files));
    all += (files.json && !all.empty() ? "," : "") + memory;
  }
  std::printf(files.json ? "{%s}\n" : "%s", all.c_str());
  return absl::OkStatus();
}

}  // namespace
}  // namespace weft

int main(int argc, char** argv) {
  CLI::App app("holds the planner's estimates against published measurements");
  weft::Files files;
  app.add_option("--steps", files.steps, "CSV of measured step times");
  app.add_option("--memory", files.memory, "CSV of measured memory");
  app.add_option("--oom", files.oom, "CSV of layouts that no run succeeded with");
  app.add_flag("--json", files.json, "one JSON object instead of text");
  app.add_flag("--rows", files.rows, "a line per row of --memory");
  app.add_flag("--cross", files.cross, "with --memory: habits found again without each model");
  CLI11_PARSE(app, argc, argv);
  if (files.steps.empty() && files.memory.empty()) {
    std::fprintf(stderr, "planner_accuracy: nothing to do; use --steps FILE or --memory FILE\n");
    return 2;
  }
  const absl::Status status = weft::Run(files);
  if (status.ok()) return 0;
  std::fprintf(stderr, "planner_accuracy: %s\n", std::string{status.message()}.c_str());
  return 2;
}
