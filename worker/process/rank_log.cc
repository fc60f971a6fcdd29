#include "worker/process/rank_log.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "process/log.h"
#include "process/older_file.h"

namespace weft {

absl::Status RankLog::Redirect(const std::string& run_folder, int64_t generation, int rank) {
  const std::string logs = absl::StrCat("logs/generation-", generation);
  path_ = {run_folder, absl::StrCat(logs, "/rank-", rank, ".log")};
  const int folder = MakeEntryFolder({run_folder, logs}).descriptor;
  if (folder >= 0) close(folder);
  return TakeOutput(OpenEntry(path_, EntryUse::kAppend));
}

// The kernel puts the new file in the old one's place at once: a line that another thread writes
// goes to one of them.
absl::Status RankLog::TakeOutput(const OpenedEntry& log) const {
  std::string why = log.why;
  if (log.ok() &&
      (dup2(log.descriptor, STDOUT_FILENO) < 0 || dup2(log.descriptor, STDERR_FILENO) < 0)) {
    why = std::strerror(errno);
  }
  if (log.ok()) close(log.descriptor);
  if (why.empty()) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path_.text(), ": cannot be written: ", why));
}

void RankLog::KeepWithin(int64_t bytes) {
  struct stat facts = {};
  if (fstat(STDERR_FILENO, &facts) != 0 || facts.st_size < bytes) return;
  const absl::Status begun = TakeOutput(BeginNewFile(path_));
  if (begun.ok() || has_warned_) return;
  has_warned_ = true;
  LogWarning(absl::StrCat("logs.max_file_bytes: the log grows on: ", begun.message()));
}

}  // namespace weft
