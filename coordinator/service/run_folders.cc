#include "coordinator/service/run_folders.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "coordinator/fleet/fleet.h"
#include "plan/errors.h"
#include "plan/spec/checkpoint_folder.h"
#include "process/folder_entry.h"
#include "process/folder_users.h"
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
    const int error = MakeFolderFor({.readers = {uid}}, folder);
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
  const bool was_made_for_it = found.st_uid == geteuid() && UsersOf(folder).all().count(uid) > 0;
  if (is_callers || was_made_for_it) return absl::OkStatus();
  return Refused(
      what, folder,
      absl::StrCat("belongs to user ", UserName(found.st_uid), " and was not made for user ",
                   caller.name, "; name one that is not there yet: weftd makes it"));
}

// Whoever comes over the network is no user of this host: a run that was made for one is another's.
absl::Status CheckIsNobodys(const std::string& folder) {
  const std::set<uid_t> readers = UsersOf(folder).readers;
  if (readers.empty()) return absl::OkStatus();
  return Refused("run_folder", folder,
                 absl::StrCat("was made for user ", UserName(*readers.begin()),
                              ", who submits on weftd's socket; name another one"));
}

std::string NamesOf(const std::set<uid_t>& users) {
  return absl::StrJoin(users, ", ", [](std::string* text, uid_t user) { *text += UserName(user); });
}

absl::Status NotLetIn(const std::set<uid_t>& writers, const std::string& folder, int error) {
  const bool keeps_none = error == EOPNOTSUPP || error == ENOSYS;
  return absl::FailedPreconditionError(absl::StrCat(
      folder, ": user ", NamesOf(writers), ", as whom the job's agents run, cannot be let in: ",
      keeps_none ? "its file system keeps no access control lists" : std::strerror(error),
      "; name a job.output_dir on a file system that keeps them, or have weftd's user in that ",
      "user's group"));
}

// A folder of weftd's own that nobody has been let into may hold anything.
absl::Status NotMadeForOthers(const std::set<uid_t>& writers, const std::string& folder) {
  const std::string own = UserName(geteuid()), other = NamesOf(writers);
  return absl::FailedPreconditionError(absl::StrCat(
      folder, ": is there, and was not made for user ", other,
      ", as whom the job's agents run; name one that is not there yet, or, if it is a run of an ",
      "older weftd, say once: setfacl -R -m u:", other, ":rwX,d:u:", other, ":rwX,d:u:", own,
      ":rwX ", folder));
}

absl::Status OfFolder(const absl::Status& why) {
  if (!absl::IsInvalidArgument(why)) return why;
  return absl::UnavailableError(absl::StrCat(
      why.message(),
      "; it has to be on a file system that weftd and all hosts mount at the same path"));
}

// Lets them into a folder that weftd has made now, or for people before. One of another user is
// that user's matter.
absl::Status LetWritersIn(const std::set<uid_t>& writers, const std::string& folder) {
  if (writers.empty()) return absl::OkStatus();
  int error = MakeFolderFor({.writers = writers}, folder);
  if (error == EEXIST) {
    struct stat found = {};
    if (stat(folder.c_str(), &found) == 0 && found.st_uid != geteuid()) return absl::OkStatus();
    std::error_code unreadable;
    const bool is_used = !std::filesystem::is_empty(folder, unreadable) || unreadable;
    if (is_used && !IsMadeForOthers(folder)) return NotMadeForOthers(writers, folder);
    error = LetIn({.writers = writers}, {folder, "."});
  }
  if (error == 0) return absl::OkStatus();
  // Whoever cannot make it is told so in the words of those who take it next.
  std::error_code not_seen;
  const bool is_there = std::filesystem::is_directory(folder, not_seen);
  return is_there ? NotLetIn(writers, folder, error) : absl::OkStatus();
}

absl::Status MakeBelow(const std::string& run_folder, const std::string& path,
                       const std::set<uid_t>& writers) {
  const EntryPath entry = EntryOf(path, run_folder);
  const OpenedEntry made = MakeEntryFolder(entry);
  if (made.ok()) {
    close(made.descriptor);
    const int error = writers.empty() ? 0 : LetIn({.writers = writers}, entry);
    // An agent may have been faster: then the folder is its user's.
    return error == 0 || error == EPERM ? absl::OkStatus() : NotLetIn(writers, path, error);
  }
  const std::string why = absl::StrCat(path, ": cannot be made: ", made.why);
  if (made.error == ELOOP) return absl::PermissionDeniedError(why);
  return OfFolder(absl::InvalidArgumentError(why));
}

}  // namespace

std::optional<uid_t> OtherUser(int64_t uid) {
  if (uid < 0 || uid == static_cast<int64_t>(geteuid())) return std::nullopt;
  return static_cast<uid_t>(uid);
}

absl::Status MakeFoldersFor(const Caller& caller, const v1::Submission& submission) {
  if (caller.uid < 0) return CheckIsNobodys(submission.run_folder());
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

std::set<uid_t> WritersOf(const FleetJob& placed, const std::map<std::string, FleetHost>& hosts) {
  std::set<uid_t> writers;
  for (const FleetShare& share : placed.shares) {
    const auto host = hosts.find(share.machine);
    const int64_t user = host == hosts.end() ? 0 : RanksUid(host->second, placed.request);
    if (const std::optional<uid_t> other = OtherUser(user); other && *other != 0) {
      writers.insert(*other);
    }
  }
  return writers;
}

absl::StatusOr<std::vector<RunLock>> TakeFolders(const std::string& job_name,
                                                 const proto::SubmitJobRequest& request,
                                                 const std::set<uid_t>& writers) {
  ASSIGN_OR_RETURN(const JobSpec spec, ParseJobText(request.job()));
  const std::string& run = request.run_folder();
  RETURN_IF_ERROR(LetWritersIn(writers, run));
  absl::StatusOr<RunLock> folder = RunLock::Take(run);
  RETURN_IF_ERROR(OfFolder(folder.status()));
  const std::string saved = CheckpointFolder(spec.checkpoint, run);
  if (absl::StartsWith(saved, run + "/")) {
    RETURN_IF_ERROR(MakeBelow(run, saved, writers));
  } else {
    RETURN_IF_ERROR(LetWritersIn(writers, saved));
  }
  absl::StatusOr<RunLock> checkpoints = RunLock::TakeCheckpoints(saved, run);
  RETURN_IF_ERROR(OfFolder(checkpoints.status()));
  std::vector<RunLock> locks;
  locks.push_back(*std::move(folder));
  locks.push_back(*std::move(checkpoints));
  for (const RunLock& each : locks) RETURN_IF_ERROR(each.WriteHolder(getpid(), job_name));
  RETURN_IF_ERROR(MakeBelow(run, run + "/logs", writers));
  return locks;
}

}  // namespace weft
