#include "process/run_lock.h"

#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

struct Holder {
  std::string pid;  // empty: it has not said
  std::string job;
};

Holder ReadHolder(int fd) {
  char text[128] = {};
  if (pread(fd, text, sizeof(text) - 1, 0) <= 0) return {};
  const std::vector<std::string> words = absl::StrSplit(text, ' ');
  return {words[0], words.size() > 1 ? words[1] : ""};
}

bool IsTaken(int fd, int kind) {
  return flock(fd, kind | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

constexpr char kLockFile[] = "lock";

std::string InUse(const std::string& folder, const Holder& holder, absl::string_view cure) {
  if (!holder.job.empty()) {
    return absl::StrCat(folder, " is in use by ", holder.job, " of a weftd (pid ", holder.pid,
                        "); use weft status or weft stop ", holder.job, ", or another job.name");
  }
  return absl::StrCat(folder, " is in use by another weft",
                      holder.pid.empty() ? "" : absl::StrCat(" (pid ", holder.pid, ")"), "; ",
                      cure);
}

}  // namespace

absl::StatusOr<RunLock> RunLock::Take(const std::string& run_folder) {
  return Take(run_folder, {run_folder, kLockFile}, "the run folder",
              "set job.output_dir to a writable folder",
              "use weft attach or weft stop, or another job.name");
}

absl::StatusOr<RunLock> RunLock::TakeCheckpoints(const std::string& folder,
                                                 const std::string& run_folder) {
  return Take(folder, EntryOf(folder + "/.lock", run_folder), "checkpoint.folder",
              "set it to a writable folder",
              "wait for its end, or give this run a checkpoint.folder of its own");
}

absl::StatusOr<RunLock> RunLock::Take(const std::string& folder, const EntryPath& file,
                                      absl::string_view what, absl::string_view if_not_writable,
                                      absl::string_view if_in_use) {
  // A folder below one of others was made by whoever knows them.
  const int error = file.folder == folder ? MakeFolder(folder) : 0;
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot create ", what, " ", folder, ": ",
                                                   std::strerror(error), "; ", if_not_writable));
  }
  const OpenedEntry lock = OpenEntry(file, EntryUse::kLock);
  if (!lock.ok() && lock.error == EACCES) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write in ", what, " ", folder, ": ", lock.why, "; ", if_not_writable));
  }
  if (!lock.ok()) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot take ", what, " ", folder, ": its file ",
                     file.name.substr(file.name.rfind('/') + 1), ": ", lock.why));
  }
  if (IsTaken(lock.descriptor, LOCK_EX)) {
    const Holder holder = ReadHolder(lock.descriptor);
    close(lock.descriptor);
    return absl::UnavailableError(InUse(folder, holder, if_in_use));
  }
  return RunLock(lock.descriptor);
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RunLock::WriteHolder(int pid, absl::string_view job) const {
  const std::string text = job.empty() ? absl::StrCat(pid) : absl::StrCat(pid, " ", job);
  if (ftruncate(fd_, 0) != 0 ||
      pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return absl::UnknownError(
        absl::StrCat("cannot write the lock of the run folder: ", std::strerror(errno)));
  }
  return absl::OkStatus();
}

bool IsRunning(const std::string& run_folder) {
  const OpenedEntry lock = OpenEntry({run_folder, kLockFile}, EntryUse::kRead);
  if (!lock.ok()) return false;
  const bool taken = IsTaken(lock.descriptor, LOCK_SH);
  close(lock.descriptor);
  return taken;
}

std::string JobThatRuns(const std::string& run_folder) {
  const OpenedEntry lock = OpenEntry({run_folder, kLockFile}, EntryUse::kRead);
  if (!lock.ok()) return "";
  const std::string job = IsTaken(lock.descriptor, LOCK_SH) ? ReadHolder(lock.descriptor).job : "";
  close(lock.descriptor);
  return job;
}

}  // namespace weft
