// The ledger: one line for each run of this user, what was predicted beside what was measured, so
// that `weft plan` can say how far off it has been on this hardware. A JSON-lines file in the
// user's state folder; losing it costs nothing but that sentence. Whole lines are appended at once,
// so that several runs may write.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/run/run_metrics.h"
#include "plan/estimate/prediction_error.h"
#include "plan/spec/cluster.h"
#include "text/json_lines.h"

namespace weft {

// A part of the step (plan/schedule/step_part.h), on rank 0.
struct PartRecord {
  std::string name;
  double predicted_s = 0;
  double measured_s = 0;  // median
  friend bool operator==(const PartRecord&, const PartRecord&) = default;
};

struct LedgerEntry {
  int64_t unix_s = 0;
  std::string hardware;  // HardwareKey
  std::string weft;      // version that predicted and ran
  std::string job;
  std::string model;   // "gpt2, 842 k parameters"
  std::string layout;  // LayoutText
  int workers = 0;
  int64_t steps = 0;  // that were measured
  double predicted_step_s = 0;
  double measured_step_s = 0;                           // median
  std::vector<std::pair<std::string, double>> terms_s;  // of the prediction
  std::vector<PartRecord> parts;                        // empty where they were not measured
  int64_t planned_bytes = 0;                            // of the largest worker, libraries included
  int64_t peak_bytes = 0;                               // its measured peak; 0 = not known
  friend bool operator==(const LedgerEntry&, const LedgerEntry&) = default;
};

// "cpu/5f2e91c3a07b4d68": the profile's name and a digest of its figures, but for how many nodes
// and slots are used and what they cost. A profile that was measured anew starts a new record.
std::string HardwareKey(const Cluster& cluster);

// $XDG_STATE_HOME/weft/ledger.jsonl, else ~/.local/state/weft/ledger.jsonl; empty if there is
// neither (no ledger is kept then).
std::string LedgerPath();
// Returns LedgerPath for these values of the variables; the XDG base directory specification
// ignores relative ones.
std::string LedgerPathFrom(absl::string_view state_home, absl::string_view home);

// Unavailable if it cannot be written; folders are made (0700). Nothing to do for an empty path.
absl::Status AppendToLedger(const std::string& path, const LedgerEntry& entry);

// The newest entries (those of the last MiB), oldest first. Lines of
// another version are skipped, *left_out has those that cannot be read.
std::vector<LedgerEntry> ReadLedger(const std::string& path, LinesLeftOut* left_out = nullptr);

// Errors are predicted / measured - 1: above 0, the step was faster than predicted.
struct RecordedError {
  int runs = 0;
  double median = 0;  // signed
  double p90 = 0;     // of the absolute errors
  // Each part of the step has the median of (predicted - measured) / the measured step. The medians
  // are of the runs whose parts were measured.
  std::vector<std::pair<std::string, double>> parts;
  ErrorBar bar;  // of the next prediction
};

// Returns the error of the last 50 runs on this hardware; nothing if there is none. Pure.
std::optional<RecordedError> ErrorOn(const std::vector<LedgerEntry>& entries,
                                     const std::string& hardware);

// Reads the user's ledger.
std::optional<RecordedError> RecordedErrorOn(const Cluster& cluster,
                                             LinesLeftOut* left_out = nullptr);

// Returns a text for people: "recorded: 12 runs on this profile, median error +3.1 %, p90 7.0 %",
// and where parts were measured ", of the step: forward +1.0 %, ..." on a second line; empty if
// there is no record.
std::string RecordedErrorText(const std::optional<RecordedError>& error);

// Step times that a run has put into its metrics.jsonl: the median, without the first two steps of
// each generation. Nothing if fewer than 5 are left.
struct MeasuredSteps {
  int64_t steps = 0;
  double median_s = 0;
  std::vector<std::pair<std::string, double>> parts_s;  // medians, of the parts that are there
};
std::optional<MeasuredSteps> MeasureSteps(const RunMetrics& metrics);

// How many of the steps after `after_step`, up to `last_step`, the run has no line of; all of them
// where the file is not there. Lines that metrics.max_file_bytes has taken away are not missed.
int64_t StepsWithoutLine(const RunMetrics& metrics, int64_t after_step, int64_t last_step);

// Returns a sentence with the part that differs most where the measured step differs from the
// predicted one by more than a fifth. Else empty. Pure.
std::string DifferenceText(const LedgerEntry& entry);

}  // namespace weft
