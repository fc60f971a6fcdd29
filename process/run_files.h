// RunFiles: events.jsonl and resolved.yaml of a run folder. `weft run` writes them for its run,
// weftd for the jobs that it serves. A disk that is full or fails for a while is said, and stops
// nothing: lines wait in memory (line_file.h). One thread.
#pragma once
#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "process/line_file.h"

namespace weft {

class RunFiles final {
 public:
  // `say` is told in words what cannot be written, once for each time of trouble.
  // `reader`: another user who may read resolved.yaml (folder_users.h).
  RunFiles(const std::string& run_folder, std::function<void(const std::string&)> say,
           std::optional<uid_t> reader = std::nullopt);
  // Writes what is kept.
  ~RunFiles();
  RunFiles(const RunFiles&) = delete;
  RunFiles& operator=(const RunFiles&) = delete;

  // `line`: with its end; empty: there is nothing to write.
  void WriteEvent(const std::string& line);
  // The one before stays where this one cannot be written. It is tried again by TryAgain, unless
  // another one has taken its place.
  absl::Status WriteResolved(const std::string& text);
  // Writes what could not be written before.
  void TryAgain();

 private:
  void Warn(const absl::Status& status) const;

  const std::string resolved_;
  const std::function<void(const std::string&)> say_;
  const std::optional<uid_t> reader_;
  const absl::StatusOr<std::unique_ptr<LineFile>> events_;
  std::string unwritten_;  // a resolved.yaml; empty: none
};

std::string EventsPath(const std::string& run_folder);

// Writes `text` to `path`: all of it or nothing (a temporary file, fsync, rename); for this user
// alone (0600). In a folder of another user, who is to read it, it becomes that user's, or else is
// readable for the folder's group, as far as this user may do so. `reader` may read it, too.
absl::Status WriteWhole(const std::string& path, const std::string& text,
                        std::optional<uid_t> reader = std::nullopt);

}  // namespace weft
