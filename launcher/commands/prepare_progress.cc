#include "launcher/commands/prepare_progress.h"

#include <unistd.h>

#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

// Where nobody looks on, a log has a line so often.
constexpr std::chrono::seconds kBetweenLines(10);

// "1.2 GB", "31.0 MB".
std::string Size(double bytes) {
  if (bytes >= 1e9) return absl::StrFormat("%.2f GB", bytes * 1e-9);
  return bytes >= 1e5 ? absl::StrFormat("%.1f MB", bytes * 1e-6)
                      : absl::StrFormat("%.0f bytes", bytes);
}

std::string Duration(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  return absl::StrFormat("%d:%02d:%02d", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

PrepareProgressLine::PrepareProgressLine()
    : is_terminal_(isatty(STDERR_FILENO) == 1), begin_(Clock::now()), shown_(begin_) {}

void PrepareProgressLine::Show(const PrepareProgress& now) {
  if (now.is_over) {
    End();
    begin_ = Clock::now();
    first_stored_.reset();
    return;
  }
  if (!now.waits.empty()) {
    End();
    std::cerr << "prepare: waits: " << now.waits << "\n" << std::flush;
    return;
  }
  if (!first_stored_) first_stored_ = now.stored_bytes;
  if (!is_terminal_ && Clock::now() - shown_ < kBetweenLines) return;
  shown_ = Clock::now();
  std::cerr << (is_terminal_ ? "\r\033[K" : "") << Text(now) << (is_terminal_ ? "" : "\n")
            << std::flush;
  is_open_ = is_terminal_;
}

void PrepareProgressLine::End() {
  if (is_open_) std::cerr << "\r\033[K" << std::flush;
  is_open_ = false;
}

std::string PrepareProgressLine::Text(const PrepareProgress& now) const {
  const double took_s = std::chrono::duration<double>(Clock::now() - begin_).count();
  const auto stored = static_cast<double>(now.stored_bytes);
  const auto all = static_cast<double>(now.all_stored_bytes);
  std::string text = absl::StrFormat("prepare: %s", Size(stored));
  if (all > 0) absl::StrAppendFormat(&text, " of %s (%.0f %%)", Size(all), 100 * stored / all);
  absl::StrAppendFormat(&text, ", %.1f MB/s of text, %d tokens",
                        static_cast<double>(now.text_bytes) / took_s * 1e-6, now.tokens);
  const double speed = (stored - static_cast<double>(*first_stored_)) / took_s;
  if (all > 0 && speed > 0) absl::StrAppend(&text, ", ", Duration((all - stored) / speed), " left");
  return text;
}

std::function<void(const PrepareProgress&)> ShowPrepareProgress() {
  const auto line = std::make_shared<PrepareProgressLine>();
  return [line](const PrepareProgress& now) { line->Show(now); };
}

}  // namespace weft
