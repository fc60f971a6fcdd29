// The end of a log is what people are shown of it.
#pragma once
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace weft {

// The last `bytes` of a file; empty if it cannot be read.
std::string ReadTail(const std::string& path, int64_t bytes);

// Several may write to a log, one after the other: these return where the next one begins, and the
// last `bytes` of what was written from there on.
int64_t EndOfLog(const std::string& path);
std::string ReadTailFrom(const std::string& path, int64_t begin, int64_t bytes);

// The last `lines` lines of a text that are not empty, at most `bytes` of it.
std::string LastLines(absl::string_view text, int lines, size_t bytes);

// The same of what tells why a process has ended: lines of a log at INFO (process/log.h) tell what
// went well. Empty: there are no others.
std::string LastReasons(absl::string_view text, int lines, size_t bytes);

}  // namespace weft
