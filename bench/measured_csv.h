// Published measurements as the planner's values: one row of measured_steps.csv,
// measured_memory.csv or oom_layouts.csv (the columns are bench/README.md's) is one run of a
// layout. A row that the planner has no words for is left out with the reason. No file but the one
// named is read.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "plan/spec/layout.h"
#include "plan/spec/model.h"
#include "plan/spec/precision.h"

namespace weft {

struct MeasuredRun {
  std::string id, source, notes;
  std::string hardware;  // as the source names it: "A100-80G", "H100-80G SXM"
  std::string model;     // "llama 16x2048": runs of one model, whatever its source
  ModelShape shape;
  Layout layout;
  BatchShape batch;
  Precision precision = Precision::kBf16;
  bool flash_attention = true;
  int gpus = 1;
  int gpus_per_node = 8;
  std::optional<double> inter_node_bytes_per_s;  // nominal, per GPU, one way
  // Columns that the source left empty and that hold a default here: "recompute", "tied", ...
  std::vector<std::string> assumed;

  std::optional<double> step_s;
  std::string tier;                        // of the step time: "A", "B", "C"
  std::optional<int64_t> allocated_bytes;  // at rest, between steps
  std::optional<int64_t> peak_bytes;
  std::string rank_or_stage;  // "first", "last", "max", "unknown"
  std::string counted;        // "torch_allocated", "nvidia_smi", ...
};

struct LeftOutRow {
  std::string id, source, reason;
};

struct MeasuredTable {
  std::vector<MeasuredRun> runs;
  std::vector<LeftOutRow> left_out;
};

// Comma separated, one header line, cells quoted by " where they hold commas. NotFound: no such
// file; InvalidArgument: a column that every table has is missing, or a line has too few cells.
absl::StatusOr<MeasuredTable> ReadMeasured(const std::string& path);

// The same of a file's text; `name` is for messages.
absl::StatusOr<MeasuredTable> ParseMeasured(absl::string_view text, absl::string_view name);

}  // namespace weft
