#include "worker/train/metrics.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"

namespace weft {

namespace {

// JSON has no word for what is not finite.
std::string NumberOrNull(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.9g", value) : "null";
}

}  // namespace

std::string MetricsLine(const StepReport& report, int64_t generation) {
  std::string line = absl::StrFormat(
      "{\"step\":%d,\"loss\":%s,\"loss_hex\":\"%a\",\"grad_norm\":%s,\"grad_norm_hex\":\"%a\","
      "\"lr\":%.9g,\"tokens\":%d,\"tokens_per_s\":%.6g,\"step_s\":%.6g,\"generation\":%d",
      report.step, NumberOrNull(report.loss), report.loss, NumberOrNull(report.grad_norm),
      report.grad_norm, report.lr, report.tokens,
      static_cast<double>(report.tokens) / report.step_s, report.step_s, generation);
  for (size_t i = 0; report.parts && i < kStepParts; ++i) {
    const auto part = static_cast<StepPart>(i);
    absl::StrAppendFormat(&line, ",\"%s_s\":%.6g", WordOf(part), report.parts->of(part));
  }
  if (report.skipped) {
    absl::StrAppendFormat(&line, ",\"skipped\":true,\"skipped_steps\":%d", report.skipped_steps);
  }
  if (report.loss_scale > 0) {
    absl::StrAppendFormat(&line, ",\"loss_scale\":%.9g", report.loss_scale);
  }
  if (report.valid_loss) {
    absl::StrAppendFormat(&line, ",\"valid_loss\":%s,\"valid_loss_hex\":\"%a\"",
                          NumberOrNull(*report.valid_loss), *report.valid_loss);
  }
  return absl::StrCat(line, "}");
}

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path,
                                                               int64_t max_bytes) {
  ASSIGN_OR_RETURN(std::unique_ptr<LineFile> lines, LineFile::Open(path, max_bytes));
  return std::unique_ptr<MetricsFile>(new MetricsFile(std::move(lines)));
}

absl::Status MetricsFile::Append(const StepReport& report, int64_t generation) {
  return lines_->Append(MetricsLine(report, generation));
}

}  // namespace weft
