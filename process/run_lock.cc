#include "process/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

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
  return Take(run_folder, "/lock", "the run folder", "set job.output_dir to a writable folder",
              "use weft attach or weft stop, or another job.name");
}

absl::StatusOr<RunLock> RunLock::TakeCheckpoints(const std::string& folder) {
  return Take(folder, "/.lock", "checkpoint.folder", "set it to a writable folder",
              "wait for its end, or give this run a checkpoint.folder of its own");
}

absl::StatusOr<RunLock> RunLock::Take(const std::string& folder, const char* file,
                                      absl::string_view what, absl::string_view if_not_writable,
                                      absl::string_view if_in_use) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot create ", what, " ", folder, ": ",
                                                   error.message(), "; ", if_not_writable));
  }
  const std::string path = folder + file;
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write in ", what, " ", folder, ": ",
                                                   std::strerror(errno), "; ", if_not_writable));
  }
  if (IsTaken(fd, LOCK_EX)) {
    const Holder holder = ReadHolder(fd);
    close(fd);
    return absl::UnavailableError(InUse(folder, holder, if_in_use));
  }
  return RunLock(fd);
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
  const int fd = open((run_folder + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool taken = IsTaken(fd, LOCK_SH);
  close(fd);
  return taken;
}

std::string JobThatRuns(const std::string& run_folder) {
  const int fd = open((run_folder + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return "";
  const std::string job = IsTaken(fd, LOCK_SH) ? ReadHolder(fd).job : "";
  close(fd);
  return job;
}

}  // namespace weft
