#include "coordinator/service/submitter_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plan/errors.h"
#include "plan/spec/checkpoint_folder.h"
#include "process/folder_reader.h"
#include "proto/job_text.h"

namespace weft {
namespace {

std::string OwnName() {
  return absl::StrCat("user ", UserName(geteuid()), ", as whom weftd runs");
}

absl::Status Refused(absl::string_view what, const std::string& folder, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", folder, " ", why));
}

absl::Status MakeFor(const Caller& caller, absl::string_view what, const std::string& folder) {
  const auto uid = static_cast<uid_t>(caller.uid);
  struct stat found = {};
  if (stat(folder.c_str(), &found) != 0) {
    const int error = MakeFolderFor(uid, folder);
    if (error == 0) return absl::OkStatus();
    return Refused(what, folder,
                   absl::StrCat("cannot be made by ", OwnName(), ": ", std::strerror(error),
                                "; name a folder in which that user may write"));
  }
  const bool is_callers = found.st_uid == uid;
  if (is_callers && faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) {
    return Refused(what, folder,
                   absl::StrCat("cannot be written by ", OwnName(), ": ", std::strerror(errno),
                                "; name one that is not there yet: weftd makes it"));
  }
  const bool was_made_for_it = found.st_uid == geteuid() && ReaderOf(folder) == uid;
  if (is_callers || was_made_for_it) return absl::OkStatus();
  return Refused(
      what, folder,
      absl::StrCat("belongs to user ", UserName(found.st_uid), " and was not made for user ",
                   caller.name, "; name one that is not there yet: weftd makes it"));
}

}  // namespace

std::optional<uid_t> OtherUser(int64_t uid) {
  if (uid < 0 || uid == static_cast<int64_t>(geteuid())) return std::nullopt;
  return static_cast<uid_t>(uid);
}

absl::Status MakeFoldersFor(const Caller& caller, const v1::Submission& submission) {
  if (!OtherUser(caller.uid)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const JobSpec job, ParseJobText(submission.job()));
  const std::string& run = submission.run_folder();
  if (!absl::StartsWith(run, "/")) {
    return Refused("run_folder", run, "is no absolute path; begin with /");
  }
  RETURN_IF_ERROR(MakeFor(caller, "run_folder", run));
  const std::string checkpoints = CheckpointFolder(job.checkpoint, run);
  if (absl::StartsWith(checkpoints, run + "/")) return absl::OkStatus();
  return MakeFor(caller, "checkpoint.folder", checkpoints);
}

}  // namespace weft
