#include "launcher/machine/leftovers.h"

#include <dirent.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace weft {
namespace {

constexpr int kPollMs = 10;

bool CarriesRun(const std::string& environ_path, const std::string& cookie) {
  std::ifstream stream(environ_path, std::ios::binary);
  std::stringstream read;
  read << stream.rdbuf();  // nothing if the process is gone by now
  const std::string text = read.str();
  return absl::StartsWith(text, cookie) || absl::StrContains(text, std::string(1, '\0') + cookie);
}

}  // namespace

std::vector<pid_t> ProcessesOf(const std::string& run_id) {
  std::vector<pid_t> found;
  const std::string cookie = absl::StrCat(kRunVariable, "=", run_id, std::string(1, '\0'));
  DIR* folder = opendir("/proc");
  if (folder == nullptr) return found;
  while (const dirent* entry = readdir(folder)) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid) || pid == getpid()) continue;
    const std::string process = absl::StrCat("/proc/", pid);
    struct stat status = {};
    if (stat(process.c_str(), &status) != 0 || status.st_uid != getuid()) continue;
    if (CarriesRun(process + "/environ", cookie)) found.push_back(pid);
  }
  closedir(folder);
  return found;
}

int KillProcessesOf(const std::string& run_id, pid_t except, int patience_ms) {
  size_t most = 0;
  for (int waited = 0; waited <= patience_ms; waited += kPollMs) {
    std::vector<pid_t> processes = ProcessesOf(run_id);
    std::erase(processes, except);
    if (processes.empty()) break;
    most = std::max(most, processes.size());
    for (const pid_t pid : processes) kill(pid, SIGKILL);
    usleep(kPollMs * 1000);
  }
  return static_cast<int>(most);
}

std::string TemporaryFolder(const std::string& run_id, int world_size) {
  struct statvfs space = {};
  const bool room = access("/dev/shm", W_OK) == 0 && statvfs("/dev/shm", &space) == 0 &&
                    static_cast<int64_t>(space.f_bavail) * static_cast<int64_t>(space.f_frsize) >
                        kSharedBytesPerRank * world_size;
  return absl::StrCat(room ? "/dev/shm" : "/tmp", "/weft-", run_id, "-tmp");
}

std::vector<std::string> TemporaryFoldersLeft() {
  std::vector<std::string> left;
  for (const char* base : {"/dev/shm", "/tmp"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(base, error)) {
      const std::string name = entry.path().filename().string();
      absl::string_view id = name;
      if (!absl::ConsumePrefix(&id, "weft-") || !absl::ConsumeSuffix(&id, "-tmp")) continue;
      struct stat status = {};
      const bool ours = stat(entry.path().c_str(), &status) == 0 && status.st_uid == getuid();
      if (ours && ProcessesOf(std::string(id)).empty()) left.push_back(entry.path().string());
    }
  }
  return left;
}

void RemoveTemporaryFolders(const std::string& run_id) {
  for (const char* base : {"/dev/shm", "/tmp"}) {
    std::error_code error;
    std::filesystem::remove_all(absl::StrCat(base, "/weft-", run_id, "-tmp"), error);
  }
}

}  // namespace weft
