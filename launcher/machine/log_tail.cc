#include "launcher/machine/log_tail.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "process/folder_entry.h"
#include "process/older_file.h"

namespace weft {
namespace {

constexpr absl::string_view kContinued = "    ";  // a line of a message of several
constexpr size_t kTimeBytes = 24;                 // "2026-11-21T12:00:00.123Z"

// LogLine (process/log) writes a line so.
bool IsInfo(absl::string_view line) {
  return line.size() > kTimeBytes && line[kTimeBytes - 1] == 'Z' && line[10] == 'T' &&
         absl::StartsWith(line.substr(kTimeBytes), " INFO ");
}

std::string Joined(std::vector<absl::string_view> all, int lines) {
  if (all.size() > static_cast<size_t>(lines)) all.erase(all.begin(), all.end() - lines);
  return absl::StrJoin(all, "\n");
}

}  // namespace

std::string ReadTail(const std::string& path, int64_t bytes) {
  return ReadEndOfFile(LogEntryOf(path), bytes);
}

int64_t EndOfLog(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(size);
}

std::string ReadTailFrom(const std::string& path, int64_t begin, int64_t bytes) {
  return ReadTail(path, std::clamp<int64_t>(EndOfLog(path) - begin, 0, bytes));
}

std::string LastLines(absl::string_view text, int lines, size_t bytes) {
  if (text.size() > bytes) text = text.substr(text.size() - bytes);
  return Joined(absl::StrSplit(text, '\n', absl::SkipWhitespace()), lines);
}

std::string LastReasons(absl::string_view text, int lines, size_t bytes) {
  if (text.size() > bytes) text = text.substr(text.size() - bytes);
  std::vector<absl::string_view> reasons;
  bool is_info = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n', absl::SkipWhitespace())) {
    is_info = IsInfo(line) || (is_info && absl::StartsWith(line, kContinued));
    if (!is_info) reasons.push_back(line);
  }
  return Joined(std::move(reasons), lines);
}

}  // namespace weft
