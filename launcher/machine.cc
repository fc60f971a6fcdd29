#include "launcher/machine.h"

#include <algorithm>
#include <fstream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace weft {
namespace {

// The number a file holds; nothing for "max", or if there is no such file.
std::optional<int64_t> NumberIn(const std::string& path) {
  std::ifstream stream(path);
  int64_t number = 0;
  if (!(stream >> number)) return std::nullopt;
  return number;
}

// What a group's limit leaves; nothing if it has none.
std::optional<int64_t> LeftIn(const std::string& folder, const char* limit_file,
                              const char* usage_file) {
  const std::optional<int64_t> limit = NumberIn(absl::StrCat(folder, "/", limit_file));
  const std::optional<int64_t> usage = NumberIn(absl::StrCat(folder, "/", usage_file));
  if (!limit || !usage) return std::nullopt;
  return std::max<int64_t>(0, *limit - *usage);
}

std::optional<int64_t> MemAvailable(const std::string& root) {
  std::ifstream stream(root + "/proc/meminfo");
  for (std::string key; stream >> key;) {
    int64_t kib = 0;
    if (key == "MemAvailable:" && stream >> kib) return kib * 1024;
    stream.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return std::nullopt;
}

}  // namespace

std::optional<int64_t> AvailableMemoryBytesBelow(const std::string& root) {
  std::optional<int64_t> least = MemAvailable(root);
  const auto take = [&](const std::optional<int64_t>& bytes) {
    if (bytes && (!least || *bytes < *least)) least = bytes;
  };
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    const bool v2 = parts[1].empty();
    if (!v2 && parts[1] != "memory") continue;
    const std::string base = root + (v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/memory");
    // Every group above ours limits us too; a path of 64 parts is deeper than any.
    std::string path = parts[2];
    for (int depth = 0; depth < 64; ++depth) {
      take(v2 ? LeftIn(base + path, "memory.max", "memory.current")
              : LeftIn(base + path, "memory.limit_in_bytes", "memory.usage_in_bytes"));
      if (path.empty() || path == "/") break;
      path = path.substr(0, path.rfind('/'));
    }
  }
  return least;
}

std::optional<int64_t> AvailableMemoryBytes() {
  return AvailableMemoryBytesBelow("");
}

}  // namespace weft
