// RankLog is what a rank writes to stdout and stderr: <run>/logs/generation-<g>/rank-<r>.log, where
// the agent looks for the last lines of a rank that failed. Libraries write there, too, some of
// them without end. REQUIRES: one thread at a time; others may write meanwhile.
#pragma once
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "process/folder_entry.h"

namespace weft {

class RankLog {
 public:
  // Sends this process's output there. Unavailable if it cannot be written.
  absl::Status Redirect(const std::string& run_folder, int64_t generation, int rank);
  // Begins a new file where the log holds so many bytes (process/older_file.h): no line is lost but
  // those of the older file before. Goes on with the log as it is where that fails.
  void KeepWithin(int64_t bytes);

 private:
  absl::Status TakeOutput(const OpenedEntry& log) const;

  EntryPath path_;
  bool has_warned_ = false;
};

}  // namespace weft
