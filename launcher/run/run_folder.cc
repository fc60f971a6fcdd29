#include "launcher/run/run_folder.h"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "checkpoint/clean_up.h"
#include "checkpoint/folders.h"
#include "checkpoint/safetensors.h"
#include "data/token_file.h"
#include "launcher/job_file/job_yaml.h"
#include "plan/errors.h"
#include "process/folder_entry.h"

namespace weft {
namespace {

std::string FreeName(const std::string& path) {
  std::error_code error;
  for (int n = 1; n < 100000; ++n) {
    std::string name = absl::StrCat(path, ".old-", n);
    if (!std::filesystem::exists(name, error)) return name;
  }
  return absl::StrCat(path, ".old");
}

// Says why this user cannot open `name` of the run folder, where it is there.
absl::Status CheckIsReadable(const RunPaths& paths, const std::string& name) {
  const OpenedEntry entry = OpenEntry({paths.folder, name}, EntryUse::kRead);
  if (entry.ok()) close(entry.descriptor);
  if (entry.ok() || entry.error == ENOENT || entry.error == ENOTDIR) return absl::OkStatus();
  struct stat folder = {};
  const bool is_known = stat(paths.folder.c_str(), &folder) == 0;
  return absl::PermissionDeniedError(absl::StrCat(
      paths.folder, "/", name, ": cannot be read by user ", geteuid(), ": ", entry.why,
      is_known ? absl::StrCat("; the run is user ", folder.st_uid, "'s, who may read it") : ""));
}

}  // namespace

absl::Status CheckIsSeen(const RunPaths& paths) {
  return CheckIsReadable(paths, "lock");
}

absl::StatusOr<RunPaths> FindRun(const std::string& target) {
  std::error_code error;
  RunPaths paths;
  if (std::filesystem::is_directory(target, error)) {
    std::string folder = std::filesystem::absolute(target, error).lexically_normal().string();
    if (folder.size() > 1 && folder.back() == '/') folder.pop_back();
    paths.folder = folder;
  } else {
    ASSIGN_OR_RETURN(const JobFile file, ReadJobFile(target, {.sets = {}, .check_files = false}));
    paths = PathsOf(file.job);
  }
  RETURN_IF_ERROR(CheckIsSeen(paths));
  if (!std::filesystem::exists(paths.resolved(), error) &&
      !std::filesystem::exists(paths.lock(), error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no run in ", paths.folder, "; name a run folder or a job file that was run"));
  }
  return paths;
}

OpenedLines LinesOfRun(const std::string& path) {
  const OpenedEntry file = OpenEntry(EntryOf(path), EntryUse::kRead);
  return {path, file.descriptor, file.error, file.why};
}

absl::Status CheckIsNoJob(const std::string& run_folder, absl::string_view verb) {
  const std::string job = JobThatRuns(run_folder);
  if (job.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(run_folder, " is ", job, "'s, of a weftd that ",
                                                 "serves jobs; use weft ", verb, " ", job));
}

void MakeLogsFolder(const RunPaths& paths) {
  const OpenedEntry logs = MakeEntryFolder({paths.folder, "logs"});
  if (logs.ok()) close(logs.descriptor);
}

absl::StatusOr<std::string> MoveAside(const JobSpec& job, const std::string& run_folder,
                                      std::string run_id) {
  std::error_code error;
  const std::string checkpoints = CheckpointFolder(job);
  if (!IsWithin(checkpoints, run_folder)) {
    // Where nothing in the folder names the run, checkpoints name their run's folder.
    if (run_id.empty()) {
      ASSIGN_OR_RETURN(run_id, RunThatSaved(checkpoints, run_folder));
    }
    RETURN_IF_ERROR(MoveCheckpointsAside(checkpoints, run_id).status());
  }
  if (!std::filesystem::exists(run_folder + "/resolved.yaml", error) &&
      !std::filesystem::exists(run_folder + "/journal.db", error)) {
    return std::string();
  }
  const std::string aside = FreeName(run_folder);
  std::filesystem::rename(run_folder, aside, error);
  if (error) {
    return absl::UnknownError(
        absl::StrCat("cannot move ", run_folder, " aside: ", error.message()));
  }
  return aside;
}

absl::StatusOr<std::string> RunThatSaved(const std::string& checkpoints,
                                         const std::string& run_folder) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> steps, StepsIn(checkpoints));
  for (const int64_t step : steps) {
    const std::optional<Owner> owner = OwnerOf(StepFolder(checkpoints, step));
    if (!owner || owner->run_id.empty()) continue;
    // A run folder may have been moved with the checkpoints in it.
    if (owner->run_folder == run_folder || IsWithin(checkpoints, run_folder)) return owner->run_id;
  }
  return std::string();
}

absl::StatusOr<std::vector<std::string>> Fingerprints(const JobSpec& job) {
  std::vector<std::string> fingerprints;
  for (const auto* sources : {&job.data.train, &job.data.valid}) {
    for (const DataSource& source : *sources) {
      ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file,
                       TokenFile::Open(source.path, EncodingOf(job)));
      fingerprints.push_back(absl::StrCat(source.path, " ", file->Fingerprint()));
    }
  }
  return fingerprints;
}

absl::StatusOr<std::optional<PreviousRun>> ReadPrevious(const RunPaths& paths) {
  RETURN_IF_ERROR(CheckIsReadable(paths, "resolved.yaml"));
  std::error_code error;
  if (!std::filesystem::exists(paths.resolved(), error)) return std::nullopt;
  absl::StatusOr<JobFile> file = ReadJobFile(paths.resolved(), {.sets = {}, .check_files = false});
  if (!file.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the run before cannot be read: ", paths.resolved(),
        " is damaged; remove it to go on from the newest checkpoint, which says itself what it is "
        "of, or start anew with --fresh, which moves the run aside\n",
        file.status().message()));
  }
  return PreviousRun{std::move(file->job), ReadRecord(file->tree)};
}

std::string FullDiskText(const std::string& folder) {
  constexpr int64_t kTooLittleBytes = int64_t{1} << 20;
  struct statvfs disk = {};
  if (statvfs(folder.c_str(), &disk) != 0 || disk.f_blocks == 0) return "";
  const auto free_bytes = static_cast<int64_t>(disk.f_bavail) * static_cast<int64_t>(disk.f_frsize);
  const bool no_inode = disk.f_files > 0 && disk.f_favail == 0;
  if (free_bytes >= kTooLittleBytes && !no_inode) return "";
  return absl::StrCat("; the disk of ", folder, " is full (",
                      no_inode ? "no file can be added" : absl::StrCat(free_bytes, " bytes free"),
                      "): make room and run the same command again");
}

}  // namespace weft
