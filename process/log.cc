#include "process/log.h"

#include <unistd.h>

#include <atomic>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"

namespace weft {
namespace {

absl::string_view LevelName(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return "INFO";
    case LogLevel::kWarning:
      return "WARNING";
    case LogLevel::kError:
    case LogLevel::kNone:
      return "ERROR";
  }
  return "ERROR";
}

std::atomic<LogLevel> least_level = LogLevel::kInfo;

void Write(LogLevel level, absl::string_view message) {
  if (level < least_level.load(std::memory_order_relaxed)) return;
  const std::string line = LogLine(absl::Now(), level, message);
  // A log that cannot be written has nobody to tell; the process goes on.
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace

std::string LogLine(absl::Time when, LogLevel level, absl::string_view message) {
  return absl::StrCat(absl::FormatTime("%Y-%m-%dT%H:%M:%E3SZ", when, absl::UTCTimeZone()), " ",
                      LevelName(level), " ", absl::StrReplaceAll(message, {{"\n", "\n    "}}),
                      "\n");
}

void SetLeastLogLevel(LogLevel least) {
  least_level = least;
}

void LogInfo(absl::string_view message) {
  Write(LogLevel::kInfo, message);
}
void LogWarning(absl::string_view message) {
  Write(LogLevel::kWarning, message);
}
void LogError(absl::string_view message) {
  Write(LogLevel::kError, message);
}

}  // namespace weft
