// Files of lines that are one JSON object each, which grow while a run lives: events.jsonl,
// metrics.jsonl, the ledger. A line that a crash has cut, a disk has lost or somebody has made up
// is left out, and its reader may say so; whatever the file is, reading it takes seconds and some
// megabytes. Any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>

namespace weft {

// The newest lines are read, this much of them: 300,000 steps or events.
inline constexpr int64_t kMostJsonLinesBytes = int64_t{64} << 20;

struct JsonLinesSpan {
  int64_t from_byte = 0;
  int64_t most_bytes = kMostJsonLinesBytes;  // up to the file's end
};

// Lines that could not be read. A file that is there and is none counts as one.
struct LinesLeftOut {
  int64_t count = 0;
  std::string first;  // "/runs/a/events.jsonl: line at byte 130: nested deeper than 64, ..."
  // "1 line is left out: /runs/a/events.jsonl: ..."; empty: there is none.
  std::string Text() const;
};

// A file that its reader has opened, by the rules of the folder that it lies in.
struct OpenedLines {
  std::string path;
  int descriptor = -1;   // closed by whoever reads the lines; -1: it is not opened
  int error = 0;         // an errno, then
  std::string why = {};  // in words
};

// Calls `take` for each line that is an object of at most kMostJsonBytes, in order. No file, no
// lines.
LinesLeftOut ForEachJsonLine(const OpenedLines& file, const JsonLinesSpan& span,
                             const std::function<void(const nlohmann::ordered_json& line)>& take);
// The same of a file in a folder of this user's; links are followed.
LinesLeftOut ForEachJsonLine(const std::string& path, const JsonLinesSpan& span,
                             const std::function<void(const nlohmann::ordered_json& line)>& take);

}  // namespace weft
