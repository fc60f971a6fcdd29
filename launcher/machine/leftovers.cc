#include "launcher/machine/leftovers.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "launcher/machine/descriptor.h"

namespace weft {
namespace {

constexpr char kNumberMark[] = "+";  // "weft-0123456789abcdef@node7+1-tmp"
constexpr int kMostNames = 256;
constexpr mode_t kPassMode = S_IXGRP | S_IXOTH;  // of root's folder with what is another user's

constexpr int kSweepPollMs = 10;
constexpr const char* kBases[] = {"/dev/shm", "/tmp"};
// Sockets lie in these folders, and a socket's address takes 107 bytes.
constexpr size_t kMostHostInName = 40;

// Says whether the environment has NAME=... with what follows the name in `rest`.
bool Carries(const std::string& environment, const std::string& name, const std::string& rest) {
  return absl::StrContains(environment, absl::StrCat(std::string(1, '\0'), name, "=", rest));
}

bool IsOf(pid_t pid, const std::string& run_id, ProcessKind kind, const std::string& host,
          std::optional<uid_t> also) {
  const std::string process = absl::StrCat("/proc/", pid);
  struct stat status = {};
  if (stat(process.c_str(), &status) != 0) return false;
  if (status.st_uid != getuid() && status.st_uid != also) return false;
  std::ifstream stream(process + "/environ", std::ios::binary);
  std::stringstream read;
  read << '\0' << stream.rdbuf();  // nothing if the process is gone by now
  const std::string environment = read.str();
  const std::string end(1, '\0');
  if (!Carries(environment, kRunVariable, run_id + end)) return false;
  if (!host.empty() && !Carries(environment, kHostVariable, host + end)) return false;
  return kind == ProcessKind::kAny || Carries(environment, kGenerationVariable, "");
}

// A name of a host may be long, and need not be fit for a file.
std::string HostInName(const std::string& host) {
  bool fits = host.size() <= kMostHostInName;
  for (const char each : host)
    fits = fits && (absl::ascii_isalnum(each) || each == '-' || each == '.');
  return fits ? host : absl::StrCat(absl::Hex(std::hash<std::string>{}(host), absl::kZeroPad16));
}

// Names under /tmp and /dev/shm are anybody's: where another user has taken one, the next is used.
// All who look for a folder find it so, since the one that is this user's goes first, also once
// the names before it are free again.
std::string FreeName(const std::string& begin, const std::string& end) {
  std::string free;
  for (int n = 0; n < kMostNames; ++n) {
    std::string name = absl::StrCat(begin, n == 0 ? "" : absl::StrCat(kNumberMark, n), end);
    struct stat status = {};
    const bool is_there = lstat(name.c_str(), &status) == 0;
    if (is_there && S_ISDIR(status.st_mode) && status.st_uid == geteuid()) return name;
    if (!is_there && free.empty()) free = std::move(name);
  }
  return free.empty() ? absl::StrCat(begin, end) : free;
}

std::string FolderOf(absl::string_view folder, const std::string& run_id, const std::string& host) {
  return FreeName(absl::StrCat(folder, "/weft-", run_id, host.empty() ? "" : "@", HostInName(host)),
                  "-tmp");
}

// Whether there is room changes, this does not.
const char* MemoryBase() {
  return access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
}

// Bytes that may be written below a folder; -1: none, ever.
int64_t RoomIn(const char* folder) {
  struct statvfs space = {};
  if (access(folder, W_OK) != 0 || statvfs(folder, &space) != 0) return -1;
  return static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize);
}

// The id in a folder's name; empty: it is no run's.
absl::string_view RunOfFolder(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, "weft-")) return "";
  if (!absl::ConsumeSuffix(&name, "-tmp")) return "";
  return name.substr(0, name.find_first_of("@+"));
}

// An agent that ssh has started does not carry its run's id where others can read it. The file is
// not opened: the kernel would take closing it for the end of this process's own lock.
bool IsHeld(const std::filesystem::path& folder) {
  struct stat status = {};
  if (stat((folder / kSeatLock).c_str(), &status) != 0) return false;
  const std::string wanted =
      absl::StrFormat(" %02x:%02x:%d ", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    if (absl::StrContains(line, wanted)) return true;
  }
  return false;
}

// Temporary folders of this user's runs.
struct RunsFolder {
  std::filesystem::path path;
  std::string run_id;
};
std::vector<RunsFolder> AllFolders() {
  std::vector<RunsFolder> folders;
  for (const char* base : kBases) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
      const std::string name = entry.path().filename().string();
      const absl::string_view id = RunOfFolder(name);
      struct stat status = {};
      if (id.empty() || stat(entry.path().c_str(), &status) != 0) continue;
      if (status.st_uid == getuid()) folders.push_back({entry.path(), std::string(id)});
    }
  }
  return folders;
}

}  // namespace

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> found;
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry->d_name, &pid) && pid != getpid()) found.push_back(pid);
  }
  closedir(folder);
  return found;
}

std::vector<pid_t> ProcessesOf(const std::string& run_id, ProcessKind kind, const std::string& host,
                               std::optional<uid_t> also) {
  std::vector<pid_t> found;
  for (const pid_t pid : AllProcesses()) {
    if (IsOf(pid, run_id, kind, host, also)) found.push_back(pid);
  }
  return found;
}

int KillProcessesOnce(const std::string& run_id, ProcessKind kind, const std::string& host,
                      std::optional<uid_t> also) {
  int count = 0;
  for (const pid_t pid : AllProcesses()) {
    if (!IsOf(pid, run_id, kind, host, also)) continue;
    // By now the number may be another's: what is killed is looked at once more.
    const Descriptor pidfd = OpenPidfd(pid);
    if (!pidfd.valid() || !IsOf(pid, run_id, kind, host, also)) continue;
    count += SignalPidfd(pidfd, SIGKILL) ? 1 : 0;
  }
  return count;
}

int KillProcessesOf(const std::string& run_id, ProcessKind kind, int patience_ms,
                    const std::string& host, std::optional<uid_t> also) {
  int most = 0;
  for (int waited = 0; waited <= patience_ms; waited += kSweepPollMs) {
    const int count = KillProcessesOnce(run_id, kind, host, also);
    if (count == 0) break;
    most = std::max(most, count);
    usleep(kSweepPollMs * 1000);
  }
  return most;
}

absl::Status MakePrivateFolder(const std::string& path) {
  struct stat status = {};
  // Whoever had the folder before may remove it between the calls: then the next mkdir makes it.
  for (;;) {
    if (mkdir(path.c_str(), 0700) == 0) return absl::OkStatus();
    if (errno != EEXIST) return absl::ErrnoToStatus(errno, absl::StrCat("cannot make ", path));
    if (lstat(path.c_str(), &status) == 0) break;
    if (errno != ENOENT) return absl::ErrnoToStatus(errno, absl::StrCat("cannot look at ", path));
  }
  const mode_t others = status.st_mode & (S_IRWXG | S_IRWXO);
  const bool is_private = others == 0 || (status.st_uid == 0 && others == kPassMode);
  if (S_ISDIR(status.st_mode) && status.st_uid == geteuid() && is_private) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is there and is not a folder of this user alone (user ", status.st_uid,
                   ", mode ", absl::StrFormat("%o", status.st_mode & 0777), "); have it removed"));
}

absl::Status LetPass(const std::string& folder) {
  if (chmod(folder.c_str(), 0700 | kPassMode) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot let others pass through ", folder));
}

std::string TemporaryFolder(const std::string& run_id, int world_size, const std::string& host) {
  const bool room = RoomIn("/dev/shm") > kSharedBytesPerRank * world_size;
  return FolderOf(room ? "/dev/shm" : "/tmp", run_id, host);
}

absl::Status CheckSharedRoom(int ranks) {
  const int64_t wanted = kSharedBytesPerRank * ranks;
  std::vector<std::string> found;
  for (const char* base : kBases) {
    const int64_t room = RoomIn(base);
    if (room > wanted) return absl::OkStatus();
    found.push_back(absl::StrCat(
        base, room < 0 ? " cannot be written" : absl::StrCat(" has ", room >> 20, " MiB free")));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      absl::StrJoin(found, ", "), ", but ", ranks, ranks == 1 ? " rank needs " : " ranks need ",
      wanted >> 20,
      " MiB there to exchange data; make room in one of them (docker run --shm-size)"));
}

std::string StandingFolder(const std::string& host) {
  return FreeName(absl::StrCat(MemoryBase(), "/weft-standing-", getuid(), host.empty() ? "" : "@",
                               HostInName(host)),
                  "");
}

std::vector<std::string> FoldersOf(const std::string& run_id) {
  std::vector<std::string> folders;
  for (const RunsFolder& folder : AllFolders()) {
    if (folder.run_id == run_id) folders.push_back(folder.path.string());
  }
  return folders;
}

std::vector<std::string> TemporaryFoldersLeft() {
  std::vector<std::string> left;
  for (const RunsFolder& folder : AllFolders()) {
    if (!IsHeld(folder.path) && ProcessesOf(folder.run_id).empty()) {
      left.push_back(folder.path.string());
    }
  }
  return left;
}

std::vector<std::string> TemporaryFolders(const std::string& run_id, const std::string& host) {
  std::vector<std::string> folders;
  for (const char* base : kBases) {
    folders.push_back(FolderOf(base, run_id, host));
  }
  return folders;
}

std::string SeatFolder(const std::string& run_id, const std::string& host) {
  return FolderOf(MemoryBase(), run_id, host);
}

void RemoveTemporaryFolders(const std::string& run_id, const std::string& host) {
  for (const std::string& folder : TemporaryFolders(run_id, host)) {
    std::error_code error;
    std::filesystem::remove_all(folder, error);
  }
}

}  // namespace weft
