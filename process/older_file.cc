#include "process/older_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace weft {
namespace {

constexpr char kOlder[] = ".1";
constexpr size_t kOlderBytes = sizeof(kOlder) - 1;

std::string LastPartOf(const std::string& name) {
  return name.substr(name.rfind('/') + 1);  // npos + 1 is 0
}

}  // namespace

std::string OlderFileOf(const std::string& path) {
  return path + kOlder;
}

bool IsOlderFile(const std::string& name, std::string* newest) {
  const bool is_older = name.size() > kOlderBytes &&
                        name.compare(name.size() - kOlderBytes, kOlderBytes, kOlder) == 0;
  if (is_older) *newest = name.substr(0, name.size() - kOlderBytes);
  return is_older;
}

OpenedEntry BeginNewFile(const EntryPath& path) {
  const OpenedEntry folder = OpenFolderOf(path);
  if (!folder.ok()) return folder;
  const std::string name = LastPartOf(path.name);
  const std::string older = OlderFileOf(name);
  OpenedEntry opened;
  // Somebody who has taken the file away has made room for a new one.
  const bool moved =
      renameat(folder.descriptor, name.c_str(), folder.descriptor, older.c_str()) == 0;
  if (moved || errno == ENOENT) {
    opened = OpenEntry(path, EntryUse::kAppend);
  } else {
    opened = {.descriptor = -1, .error = errno, .why = std::strerror(errno)};
  }
  if (moved && !opened.ok()) {
    renameat(folder.descriptor, older.c_str(), folder.descriptor, name.c_str());
  }
  close(folder.descriptor);
  return opened;
}

std::string ReadEndOfFile(const EntryPath& path, int64_t bytes) {
  const OpenedEntry file = OpenEntry(path, EntryUse::kRead);
  if (!file.ok()) return "";
  const int64_t size = lseek(file.descriptor, 0, SEEK_END);
  const int64_t begin = std::max<int64_t>(0, size - bytes);
  std::string text(static_cast<size_t>(std::max<int64_t>(0, size - begin)), '\0');
  const ssize_t got = pread(file.descriptor, text.data(), text.size(), begin);
  close(file.descriptor);
  text.resize(static_cast<size_t>(std::max<ssize_t>(0, got)));
  return text;
}

std::string ReadEnd(const EntryPath& path, int64_t bytes) {
  // A file that becomes the older one meanwhile is read twice at worst, never left out.
  std::string text = ReadEndOfFile(path, bytes);
  const int64_t missing = bytes - static_cast<int64_t>(text.size());
  if (missing <= 0) return text;
  return ReadEndOfFile({path.folder, OlderFileOf(path.name)}, missing) + text;
}

}  // namespace weft
