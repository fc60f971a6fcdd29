// The logs of a run, as they lie in its folder: logs/generation-<g>/rank-<r>.log and what else is
// in logs/. A log and its older file (process/older_file.h) are one text. Files are read as they
// are; a symbolic link is not followed, and what is no regular file is not read (EntryUse::kShow).
#pragma once
#include <cstdint>
#include <memory>
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

class OpenLog;

// A LogFile is read from where it was left, also when what was read has become the older file
// since. Whoever is two files behind goes on with what is left, or, where the newest has got the
// number of the one that was read, with that one.
struct LogFile {
  int rank = -1;     // -1: no rank's
  std::string name;  // inside logs/
  std::string path;
  uint64_t inode = 0;      // of the file that is being read; 0: none yet
  int64_t offset = 0;      // of the next byte in it
  std::string begun = {};  // half a line that the file before has ended with
  // The file that is being read, held while it is told if it is no longer the newest: no other one
  // gets its number meanwhile.
  std::shared_ptr<const OpenLog> left = {};
  bool is_drained = false;  // the last look at it has found nothing more
};

// The files that there are now, ranks in ascending order, each from where it is to be read.
std::vector<LogFile> FindLogs(const LogQuestion& question);

// Returns the next whole lines, at most about 64 KiB, and moves on; empty: there are none now. A
// line that is longer comes in pieces. `to_end`: the last line need not have an end.
std::string ReadLines(LogFile& file, bool to_end);

}  // namespace weft
