// The logs of a run, as they lie in its folder: logs/generation-<g>/rank-<r>.log and what else is
// in logs/. Files are read as they are; a symbolic link is not followed, and what is no regular
// file is not read (EntryUse::kShow).
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace weft {

struct LogQuestion {
  std::string run_folder;
  std::vector<int> ranks = {};  // none: all, and what is no rank's
  int64_t generation = 0;
  int64_t tail_lines = 0;     // of each file; 0: all
  int64_t since_unix_ms = 0;  // only files that were written to after that
};

// A LogFile is read from where it was left.
struct LogFile {
  int rank = -1;     // -1: no rank's
  std::string name;  // inside logs/
  std::string path;
  int64_t offset = 0;  // of the next byte
};

// The files that there are now, ranks in ascending order, each from where it is to be read.
std::vector<LogFile> FindLogs(const LogQuestion& question);

// Returns the next whole lines, at most about 64 KiB, and moves on; empty: there are none now. A
// line that is longer comes in pieces. `to_end`: the last line need not have an end.
std::string ReadLines(LogFile& file, bool to_end);

}  // namespace weft
