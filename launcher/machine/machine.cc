#include "launcher/machine/machine.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "process/clock.h"

namespace weft {
namespace {

// The number a file holds; nothing for "max", or if there is no such file.
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream stream(path);
  int64_t number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

// Returns what a group's memory.stat says of `wanted`, in bytes; 0 where it says nothing.
int64_t StatIn(const std::string& folder, const std::string& wanted) {
  std::ifstream stream(folder + "/memory.stat");
  int64_t bytes = 0;
  for (std::string key; stream >> key >> bytes;) {
    if (key == wanted) return std::max<int64_t>(0, bytes);
  }
  return 0;
}

// Returns the bytes that a group's limit leaves; nothing if it has none. Pages of files that were
// read and are not in use count as taken, but the kernel gives them up before anything else.
std::optional<int64_t> LeftIn(const std::string& folder, bool v2) {
  const std::optional<int64_t> limit =
      NumberIn(absl::StrCat(folder, v2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const std::optional<int64_t> usage =
      NumberIn(absl::StrCat(folder, v2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !usage) return std::nullopt;
  const int64_t given_up = StatIn(folder, v2 ? "inactive_file" : "total_inactive_file");
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *usage - given_up));
}

// A line of /proc/meminfo, in bytes.
std::optional<int64_t> MemInfo(const std::string& root, const std::string& wanted) {
  std::ifstream stream(root + "/proc/meminfo");
  for (std::string key; stream >> key;) {
    int64_t kib = 0;
    if (key == wanted && stream >> kib) return kib * 1024;
    stream.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

// Calls `visit` with the folder of each group that limits us in `controller`, from ours up to the
// root of its hierarchy.
void ForEachGroup(const std::string& root, const std::string& controller,
                  const std::function<void(bool v2, const std::string& folder)>& visit) {
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool v2 = parts[1].empty();
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (!v2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) {
      continue;
    }
    const std::string base =
        absl::StrCat(root, "/sys/fs/cgroup", v2 ? "" : "/", v2 ? "" : parts[1]);
    // A path of 64 parts is deeper than any.
    std::string path = parts[2];
    for (int depth = 0; depth < 64; ++depth) {
      visit(v2, base + path);
      if (path.empty() || path == "/") break;
      path = path.substr(0, path.rfind('/'));
    }
  }
}

void TakeLeast(const std::optional<int64_t>& bytes, std::optional<int64_t>& least) {
  if (bytes && (!least || *bytes < *least)) least = bytes;
}

// Cores of a quota, rounded up; nothing if there is none.
std::optional<int> Quota(bool v2, const std::string& folder) {
  double quota = 0;
  double period = 0;
  if (v2) {
    std::ifstream stream(folder + "/cpu.max");  // "max 100000" or "150000 100000"
    if (!(stream >> quota >> period)) return std::nullopt;
  } else {
    quota = static_cast<double>(NumberIn(folder + "/cpu.cfs_quota_us").value_or(-1));
    period = static_cast<double>(NumberIn(folder + "/cpu.cfs_period_us").value_or(0));
  }
  if (quota <= 0 || period <= 0) return std::nullopt;
  return std::max(1, static_cast<int>(std::min(std::ceil(quota / period), 1e6)));
}

}  // namespace

std::optional<int64_t> AvailableMemoryBytesBelow(const std::string& root) {
  std::optional<int64_t> least = MemInfo(root, "MemAvailable:");
  ForEachGroup(root, "memory",
               [&](bool v2, const std::string& folder) { TakeLeast(LeftIn(folder, v2), least); });
  return least;
}

std::optional<int64_t> TotalMemoryBytesBelow(const std::string& root) {
  std::optional<int64_t> least = MemInfo(root, "MemTotal:");
  ForEachGroup(root, "memory", [&](bool v2, const std::string& folder) {
    TakeLeast(NumberIn(folder + (v2 ? "/memory.max" : "/memory.limit_in_bytes")), least);
  });
  return least;
}

int UsableCoresBelow(const std::string& root, int affinity) {
  int cores = std::max(1, affinity);
  ForEachGroup(root, "cpu", [&](bool v2, const std::string& folder) {
    cores = std::min(cores, Quota(v2, folder).value_or(cores));
  });
  return cores;
}

std::optional<int64_t> AvailableMemoryBytes() {
  return AvailableMemoryBytesBelow("");
}

std::optional<int64_t> TotalMemoryBytes() {
  return TotalMemoryBytesBelow("");
}

int UsableCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof(set), &set) == 0;
  return UsableCoresBelow("", known ? CPU_COUNT(&set) : 1);
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::string MachineId(const std::string& host) {
  const std::string boot = BootId();
  std::error_code error;
  const auto processes = std::filesystem::read_symlink("/proc/self/ns/pid", error);
  return absl::StrCat(boot, " ", processes.string(), " ", host);
}

std::optional<double> LoadAverage() {
  std::ifstream stream("/proc/loadavg");
  double load = 0;
  if (!(stream >> load)) return std::nullopt;
  return load;
}

std::optional<TasksAllowed> TasksOfGroupBelow(const std::string& root) {
  std::optional<TasksAllowed> least;
  ForEachGroup(root, "pids", [&](bool, const std::string& folder) {
    const std::optional<int64_t> most = NumberIn(folder + "/pids.max");
    const std::optional<int64_t> taken = NumberIn(folder + "/pids.current");
    if (!most || !taken) return;
    if (!least || *most - *taken < least->most - least->taken) least = {*most, *taken};
  });
  return least;
}

std::optional<TasksAllowed> TasksOfGroup() {
  return TasksOfGroupBelow("");
}

int64_t TasksOfUser(uint32_t user) {
  int64_t tasks = 0;
  std::error_code error;
  for (std::filesystem::directory_iterator each("/proc", error), end; !error && each != end;
       each.increment(error)) {
    const std::string name = each->path().filename().string();
    struct stat status = {};
    if (name.find_first_not_of("0123456789") != std::string::npos ||
        stat(each->path().c_str(), &status) != 0 || status.st_uid != user) {
      continue;
    }
    std::ifstream stream(each->path() / "status");
    for (std::string line; std::getline(stream, line);) {
      absl::string_view threads = line;
      int64_t count = 0;
      if (absl::ConsumePrefix(&threads, "Threads:") &&
          absl::SimpleAtoi(absl::StripAsciiWhitespace(threads), &count)) {
        tasks += count;
      }
    }
  }
  return tasks;
}

}  // namespace weft
