// A LineFile is a file of lines that a run appends while it lives: metrics.jsonl, events.jsonl. A
// disk that is full or fails for a while costs no line and stops nobody: lines wait in memory. One
// thread.
#pragma once
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace weft {

class LineFile {
 public:
  // Opens for appending; lines that are there stay, and half of one, which a crash has left, is
  // ended. Unavailable if it cannot be opened, also by the rules of folder_entry.h. A file that a
  // line would make longer than `max_bytes` becomes the older one first (older_file.h); 0: never.
  static absl::StatusOr<std::unique_ptr<LineFile>> Open(const std::string& path,
                                                        int64_t max_bytes = 0);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;

  // `line` without its end. One write per line, so that a reader never sees half of one while there
  // is room. ResourceExhausted where it cannot be written: it is kept, 4 MiB in all, and goes
  // before the next one. Later failures in a row say nothing new and are OK.
  absl::Status Append(absl::string_view line);
  // Writes what is kept; for after the last line. ResourceExhausted if there still is no room.
  absl::Status Flush();
  // Why lines wait in memory; empty: all are written.
  const std::string& trouble() const { return trouble_; }

 private:
  LineFile(std::string path, int64_t max_bytes, int file)
      : path_(std::move(path)), max_bytes_(max_bytes), file_(file) {}
  // Goes on with the file as it is where no new one can be begun: a line is worth more.
  void KeepWithin();

  const std::string path_;
  const int64_t max_bytes_;
  int file_;
  std::string unwritten_;
  std::string trouble_;
};

}  // namespace weft
