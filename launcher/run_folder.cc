#include "launcher/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "checkpoint/checkpoint.h"
#include "data/token_file.h"
#include "launcher/job_yaml.h"
#include "plan/errors.h"
#include "process/version.h"

namespace weft {
namespace {

// sockaddr_un holds 108 bytes with the final zero.
constexpr size_t kMaxSocketPath = 107;
constexpr absl::string_view kDecaySteps = "lr_scheduler.decay_steps";

absl::Status Failed(absl::string_view what, absl::string_view path) {
  return absl::UnknownError(absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// What follows the path in "path size:hash".
std::string Hash(const std::string& fingerprint) {
  return fingerprint.substr(fingerprint.rfind(' ') + 1);
}

std::vector<std::string> Hashes(const std::vector<std::string>& fingerprints) {
  std::vector<std::string> hashes;
  for (const std::string& each : fingerprints) hashes.push_back(Hash(each));
  return hashes;
}

// Files whose content is not what the run before saw, at the same path.
std::vector<std::string> ChangedFiles(const std::vector<std::string>& before,
                                      const std::vector<std::string>& now) {
  std::vector<std::string> changed;
  for (const std::string& file : now) {
    const std::string path = file.substr(0, file.rfind(' '));
    for (const std::string& old : before) {
      if (old.substr(0, old.rfind(' ')) == path && old != file) {
        changed.push_back(
            absl::StrCat("data: ", path, ": its content changed: ", Hash(old), " -> ", Hash(file)));
      }
    }
  }
  return changed;
}

std::string FreeName(const std::string& path) {
  std::error_code error;
  for (int n = 1; n < 100000; ++n) {
    std::string name = absl::StrCat(path, ".old-", n);
    if (!std::filesystem::exists(name, error)) return name;
  }
  return absl::StrCat(path, ".old");
}

}  // namespace

std::string RunPaths::rank_log(int64_t generation, int rank) const {
  return absl::StrCat(logs(), "/generation-", generation, "/rank-", rank, ".log");
}

RunPaths PathsOf(const JobSpec& job) {
  return {.folder = absl::StrCat(job.output_dir, "/", job.name)};
}

std::string CheckpointFolder(const JobSpec& job) {
  const std::filesystem::path run = PathsOf(job).folder;
  return (run / job.checkpoint.folder).lexically_normal().string();
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
  if (!std::filesystem::exists(paths.resolved(), error) &&
      !std::filesystem::exists(paths.lock(), error)) {
    return absl::InvalidArgumentError(
        absl::StrCat("no run in ", paths.folder, "; name a run folder or a job file that was run"));
  }
  return paths;
}

std::string RunId(const std::string& run_folder) {
  return absl::StrCat(
      absl::Hex(NameKey(absl::StrCat(getuid(), " ", run_folder)), absl::kZeroPad16));
}

std::string SocketPath(const std::string& run_folder, const std::string& runtime_folder) {
  std::string here = run_folder + "/weftd.sock";
  if (here.size() <= kMaxSocketPath) return here;
  const std::string name = absl::StrCat("/weft-", RunId(run_folder), "/weftd.sock");
  const std::string runtime = runtime_folder + name;
  return !runtime_folder.empty() && runtime.size() <= kMaxSocketPath ? runtime : "/tmp" + name;
}

std::string RuntimeFolder() {
  const char* folder = getenv("XDG_RUNTIME_DIR");
  return folder != nullptr && access(folder, W_OK) == 0 ? folder : "";
}

absl::StatusOr<RunLock> RunLock::Take(const std::string& run_folder) {
  std::error_code error;
  std::filesystem::create_directories(run_folder, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot create the run folder ", run_folder,
                                                   ": ", error.message(),
                                                   "; set job.output_dir to a writable folder"));
  }
  const std::string path = run_folder + "/lock";
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write in the run folder ", run_folder,
                                                   ": ", std::strerror(errno),
                                                   "; set job.output_dir to a writable folder"));
  }
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    char pid[32] = {};
    const ssize_t got = pread(fd, pid, sizeof(pid) - 1, 0);
    close(fd);
    return absl::UnavailableError(absl::StrCat(
        run_folder, " is in use by another weft", got > 0 ? absl::StrCat(" (pid ", pid, ")") : "",
        "; use weft attach or weft stop, or another job.name"));
  }
  return RunLock(fd);
}

RunLock::~RunLock() {
  if (fd_ >= 0) close(fd_);
}

absl::Status RunLock::WritePid(int pid) const {
  const std::string text = absl::StrCat(pid);
  if (ftruncate(fd_, 0) != 0 ||
      pwrite(fd_, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    return Failed("write", "the lock of the run folder");
  }
  return absl::OkStatus();
}

bool IsRunning(const std::string& run_folder) {
  const int fd = open((run_folder + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool taken = flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  close(fd);
  return taken;
}

absl::StatusOr<std::string> MoveAside(const JobSpec& job, const std::string& run_folder) {
  std::error_code error;
  const std::string checkpoints = CheckpointFolder(job);
  if (!absl::StartsWith(checkpoints, run_folder + "/") &&
      std::filesystem::exists(checkpoints, error)) {
    std::filesystem::rename(checkpoints, FreeName(checkpoints), error);
    if (error) {
      return absl::UnknownError(
          absl::StrCat("cannot move ", checkpoints, " aside: ", error.message()));
    }
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

absl::StatusOr<std::vector<std::string>> Fingerprints(const JobSpec& job) {
  std::vector<std::string> fingerprints;
  for (const auto* sources : {&job.data.train, &job.data.valid}) {
    for (const DataSource& source : *sources) {
      ASSIGN_OR_RETURN(const std::unique_ptr<TokenFile> file,
                       TokenFile::Open(source.path, job.data.format));
      fingerprints.push_back(absl::StrCat(source.path, " ", file->Fingerprint()));
    }
  }
  return fingerprints;
}

absl::StatusOr<std::optional<PreviousRun>> ReadPrevious(const RunPaths& paths) {
  std::error_code error;
  if (!std::filesystem::exists(paths.resolved(), error)) return std::nullopt;
  absl::StatusOr<JobFile> file = ReadJobFile(paths.resolved(), {.sets = {}, .check_files = false});
  if (!file.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the run before cannot be read; go on with --fresh, which moves it aside\n",
                     file.status().message()));
  }
  return PreviousRun{std::move(file->job), ReadRecord(file->tree)};
}

absl::StatusOr<Continuation> Continue(const JobSpec& job, const std::vector<std::string>& data,
                                      const std::optional<PreviousRun>& previous) {
  Continuation result;
  if (previous) {
    std::vector<std::string> refused = ChangedFiles(previous->record.data, data);
    const bool same_content = Hashes(previous->record.data) == Hashes(data);
    for (const SpecChange& change : Changes(previous->job, job)) {
      const bool moved = (change.key == "data.train" || change.key == "data.valid") &&
                         same_content && !data.empty();
      std::string line = absl::StrCat(change.key, ": ", change.before, " -> ", change.after);
      if (change.key == kDecaySteps && job.lr_scheduler.decay_steps == job.training.steps) {
        absl::StrAppend(&line,
                        " (it follows training.steps unless it is given; to go on along the ",
                        "same curve, set ", kDecaySteps, ": ", change.before, ")");
      }
      (change.mathematics && !moved ? refused : result.notes).push_back(line);
    }
    if (!refused.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "this is another run than the one in ", job.output_dir, "/", job.name, ":\n  ",
          absl::StrJoin(refused, "\n  "),
          "\nundo these changes, give the run another job.name, or start anew with --fresh (the "
          "old run is moved aside)"));
    }
    if (previous->record.weft_version != Version()) {
      result.notes.push_back(
          absl::StrCat("weft: ", previous->record.weft_version, " -> ", Version()));
    }
  }
  if (job.checkpoint.resume == ResumeMode::kNone) return result;
  ASSIGN_OR_RETURN(const FoundCheckpoint found, NewestCheckpoint(CheckpointFolder(job)));
  result.damaged = found.refused;
  if (found.path.empty()) return result;
  result.load_checkpoint = found.path;
  result.after_step = found.manifest.step;
  return result;
}

absl::Status WriteWhole(const std::string& path, const std::string& text) {
  const std::string part = path + ".part";
  const int fd = open(part.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return Failed("create", part);
  const bool written = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool durable = written && fsync(fd) == 0;
  close(fd);
  if (!durable || rename(part.c_str(), path.c_str()) != 0) return Failed("write", path);
  return absl::OkStatus();
}

}  // namespace weft
