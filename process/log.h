// The one log: a line per event on stderr, with UTC time and level. INFO is a change of phase,
// WARNING something survived, ERROR what ends the job; logged where it is handled, once.
// Thread-safe: each line is one write(2), so lines of several processes do not tear.
#pragma once
#include <string>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace weft {

// kNone is above all others, for the least level alone.
enum class LogLevel { kInfo, kWarning, kError, kNone };

// "2026-11-21T12:00:00.123Z WARNING rank 2: lease ran out\n"; newlines within become "\n    ".
std::string LogLine(absl::Time when, LogLevel level, absl::string_view message);

// Lines below `least` are left out from now on.
void SetLeastLogLevel(LogLevel least);

void LogInfo(absl::string_view message);
void LogWarning(absl::string_view message);
void LogError(absl::string_view message);

}  // namespace weft
