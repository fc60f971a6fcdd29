// RunLock is the exclusive right to a run folder, or to a checkpoint folder, as long as it lives
// (flock: the kernel drops it with the process, however that ends). `weft run` holds it for its
// run, weftd for each job that it has placed. Where a file system has no locks it is given to
// everybody: what they do to checkpoints is fenced by the checkpoints themselves.
#pragma once
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "process/folder_entry.h"

namespace weft {

class RunLock {
 public:
  // Creates the folder if need be. Unavailable if another process holds the lock (names it);
  // InvalidArgument if the folder cannot be made or written;
  // PermissionDenied if folder_entry.h refuses what has the lock's name.
  static absl::StatusOr<RunLock> Take(const std::string& run_folder);
  // Takes the lock `<folder>/.lock`; runs may share no checkpoint folder at one time. One that lies
  // below `run_folder`, where another user may put links, is not reached through a link there.
  static absl::StatusOr<RunLock> TakeCheckpoints(const std::string& folder,
                                                 const std::string& run_folder = "");
  RunLock(RunLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();

  // For those who are refused. `job` is the id of a weftd's job, "job-7"; empty: it is no such one.
  absl::Status WriteHolder(int pid, absl::string_view job = "") const;

 private:
  explicit RunLock(int fd) : fd_(fd) {}
  // `file`: below a folder whose links are followed.
  static absl::StatusOr<RunLock> Take(const std::string& folder, const EntryPath& file,
                                      absl::string_view what, absl::string_view if_not_writable,
                                      absl::string_view if_in_use);
  int fd_;
};

// True if a process holds the lock of `run_folder` now.
bool IsRunning(const std::string& run_folder);

// Returns "job-7" if a weftd holds the lock of `run_folder` now for that job of its own, else "".
std::string JobThatRuns(const std::string& run_folder);

}  // namespace weft
