// metrics.jsonl: one JSON object per step and line, appended by rank 0. Numbers that decide whether
// two runs are the same come twice, in decimal and as C99 hexadecimal ("%a" of the double).
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "process/line_file.h"
#include "worker/train/step_report.h"

namespace weft {

// {"step":12,"loss":2.5,"loss_hex":"0x1.4p+1","grad_norm":...,"grad_norm_hex":...,"lr":...,
//  "tokens":...,"tokens_per_s":...,"step_s":...,"generation":...} and, where rank 0's
// clock can tell them apart, "forward_s", "backward_s", "transfers_s", "reductions_s", "update_s"
// (plan/schedule/step_part.h); on steps that validate,
// "valid_loss", "valid_loss_hex"; on steps whose update was left out, "skipped":true and
// "skipped_steps", how many the run has left out so far; in fp16 "loss_scale". A number that is not
// finite is null in decimal, "nan" or "inf" in hexadecimal. One line, without its end.
std::string MetricsLine(const StepReport& report, int64_t generation);

class MetricsFile {
 public:
  // Opens for appending; lines of earlier generations stay. Unavailable if it cannot be written.
  // `max_bytes`: as LineFile's.
  static absl::StatusOr<std::unique_ptr<MetricsFile>> Open(const std::string& path,
                                                           int64_t max_bytes = 0);

  // Does what LineFile's does.
  absl::Status Append(const StepReport& report, int64_t generation);
  absl::Status Flush() { return lines_->Flush(); }
  const std::string& trouble() const { return lines_->trouble(); }

 private:
  explicit MetricsFile(std::unique_ptr<LineFile> lines) : lines_(std::move(lines)) {}

  const std::unique_ptr<LineFile> lines_;
};

}  // namespace weft
