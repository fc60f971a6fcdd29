#include "launcher/machine/run_launcher.h"

#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "launcher/machine/descriptor.h"
#include "launcher/machine/leftovers.h"

namespace weft {
namespace {

constexpr size_t kStateField = 0, kStartField = 19;  // of /proc/PID/stat, behind the name

std::string ProcTextOf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::stringstream text;
  text << stream.rdbuf();
  return text.str();
}

// The time of the process's start, in clock ticks since the machine's; empty: it is gone, or dead.
std::string StartOf(const std::string& process) {
  const std::string stat = ProcTextOf(process + "/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 > stat.size()) return "";
  const std::vector<std::string> fields = absl::StrSplit(stat.substr(name_end + 2), ' ');
  if (fields.size() <= kStartField || fields[kStateField] == "Z" || fields[kStateField] == "X") {
    return "";
  }
  return fields[kStartField];
}

// The number that the process has in its own PID namespace: a launcher in a container knows no
// other.
std::string OwnNumberOf(const std::string& process) {
  std::ifstream status(process + "/status");
  for (std::string line; std::getline(status, line);) {
    absl::string_view numbers = line;
    if (!absl::ConsumePrefix(&numbers, "NSpid:")) continue;
    const std::vector<std::string> each = absl::StrSplit(numbers, '\t', absl::SkipEmpty());
    return each.empty() ? "" : each.back();
  }
  return "";
}

std::string MarkIn(pid_t pid) {
  const std::string environment = ProcTextOf(absl::StrCat("/proc/", pid, "/environ"));
  for (absl::string_view each : absl::StrSplit(environment, '\0')) {
    if (absl::ConsumePrefix(&each, absl::StrCat(kLauncherVariable, "="))) return std::string(each);
  }
  return "";
}

// Somebody holds the seat of the run's agent whom the kernel does not name here: it lives in a
// container that shares the folder alone.
bool IsSeatHeldFromElsewhere(const std::string& folder) {
  const Descriptor file(
      open(absl::StrCat(folder, "/", kSeatLock).c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (!file.valid() || fcntl(file.get(), F_GETLK, &lock) != 0) return false;
  return lock.l_type != F_UNLCK && lock.l_pid <= 0;
}

}  // namespace

std::string LauncherMark() {
  const std::string own = "/proc/self";
  return absl::StrCat(OwnNumberOf(own), ".", StartOf(own));
}

std::optional<LivingLauncher> LivingLauncherOf(const std::string& run_id) {
  std::set<std::string> marks;
  for (const pid_t pid : ProcessesOf(run_id)) marks.insert(MarkIn(pid));
  marks.erase("");
  marks.erase(LauncherMark());
  if (!marks.empty()) {
    for (const pid_t pid : AllProcesses()) {
      const std::string process = absl::StrCat("/proc/", pid);
      if (marks.count(absl::StrCat(OwnNumberOf(process), ".", StartOf(process))) > 0) {
        return LivingLauncher{pid, ""};
      }
    }
  }
  for (const std::string& folder : FoldersOf(run_id)) {
    if (IsSeatHeldFromElsewhere(folder)) return LivingLauncher{0, folder};
  }
  return std::nullopt;
}

}  // namespace weft
