#include "worker/train/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

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

absl::StatusOr<std::unique_ptr<MetricsFile>> MetricsFile::Open(const std::string& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (file < 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": cannot be written: ", std::strerror(errno)));
  }
  return std::unique_ptr<MetricsFile>(new MetricsFile(path, file));
}

MetricsFile::~MetricsFile() {
  close(file_);
}

absl::Status MetricsFile::Append(const StepReport& report, int64_t generation) {
  constexpr size_t kMaxUnwritten = size_t{4} << 20;
  if (unwritten_.size() < kMaxUnwritten) unwritten_ += MetricsLine(report, generation) + "\n";
  const absl::Status written = Flush();
  const bool failed_before = std::exchange(has_failed_, !written.ok());
  return failed_before ? absl::OkStatus() : written;
}

absl::Status MetricsFile::Flush() {
  if (unwritten_.empty()) return absl::OkStatus();
  const ssize_t written = write(file_, unwritten_.data(), unwritten_.size());
  const int error = errno;
  unwritten_.erase(0, static_cast<size_t>(std::max<ssize_t>(0, written)));
  if (unwritten_.empty()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      path_, ": cannot append a line: ", written < 0 ? std::strerror(error) : "the disk is full",
      "; training goes on, lines are kept in memory until there is room"));
}

}  // namespace weft
