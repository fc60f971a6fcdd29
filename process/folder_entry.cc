#include "process/folder_entry.h"

#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace weft {
namespace {

constexpr mode_t kFolderMode = 0755;
constexpr mode_t kListedFolderMode = 0775;
constexpr char kDefaultList[] = "system.posix_acl_default";

class Folder {
 public:
  explicit Folder(int descriptor) : descriptor_(descriptor) {
    if (descriptor_ >= 0 && fstat(descriptor_, &facts_) != 0) Close();
  }
  Folder(Folder&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)), facts_(other.facts_) {}
  Folder& operator=(Folder&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(facts_, other.facts_);
    return *this;
  }
  ~Folder() { Close(); }

  bool ok() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }
  int Release() { return std::exchange(descriptor_, -1); }
  uid_t owner() const { return facts_.st_uid; }
  // Whether nobody else puts anything there. An access control list shows as the group's part.
  bool IsOwn() const {
    return facts_.st_uid == geteuid() && (facts_.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  }

 private:
  void Close() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  }
  int descriptor_;
  struct stat facts_ = {};
};

OpenedEntry Failed(int error) {
  return {.descriptor = -1, .error = error, .why = std::strerror(error)};
}

OpenedEntry Refused(int error, const std::string& found, const std::string& cure) {
  return {.descriptor = -1, .error = error, .why = found + "; " + cure};
}

const char* KindOf(mode_t mode) {
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return S_ISREG(mode) ? "a file" : "a device";
}

// Says what is in the way where the kernel alone says that something is.
OpenedEntry NotOpened(const Folder& folder, const std::string& name, int error) {
  struct stat entry = {};
  if (fstatat(folder.get(), name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0) return Failed(error);
  if (S_ISLNK(entry.st_mode) && (error == ELOOP || error == ENOTDIR || error == EEXIST)) {
    return Refused(ELOOP,
                   "\"" + name + "\" is a symbolic link of user " + std::to_string(entry.st_uid) +
                       ", which is not followed in a folder that others can write",
                   "remove it");
  }
  return Failed(error);
}

// The mode of a folder that is made in this one. Where an access control list says who may do what
// in it (folder_users.h), the group's part of the mode bounds those whom the list names, and gives
// the group nothing; else the umask makes it tighter.
mode_t ModeBelow(const Folder& folder) {
  // A folder that is open as a place alone says nothing of its list itself.
  const std::string place = "/proc/self/fd/" + std::to_string(folder.get());
  const bool is_listed = getxattr(place.c_str(), kDefaultList, nullptr, 0) > 0;
  return is_listed ? kListedFolderMode : kFolderMode;
}

// The next folder on the way, made if it is missing and `makes`.
Folder Enter(const Folder& from, const std::string& name, bool makes, OpenedEntry* trouble) {
  const int flags = O_PATH | O_DIRECTORY | O_CLOEXEC | (from.IsOwn() ? 0 : O_NOFOLLOW);
  Folder next(openat(from.get(), name.c_str(), flags));
  if (!next.ok() && errno == ENOENT && makes) {
    // Another process may be faster.
    const bool made = mkdirat(from.get(), name.c_str(), ModeBelow(from)) == 0 || errno == EEXIST;
    if (made) next = Folder(openat(from.get(), name.c_str(), flags));
  }
  if (!next.ok()) *trouble = NotOpened(from, name, errno);
  return next;
}

// The folder that holds the last part of `name`. The way is gone step by step: openat2 would do so
// in one call, but containers refuse it, and one way is enough.
Folder Walk(const EntryPath& path, bool makes, std::string* last, OpenedEntry* trouble) {
  Folder at(open(path.folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!at.ok()) *trouble = Failed(errno);
  size_t begin = 0;
  for (size_t slash = path.name.find('/'); at.ok() && slash != std::string::npos;
       slash = path.name.find('/', begin)) {
    const std::string part = path.name.substr(begin, slash - begin);
    begin = slash + 1;
    if (part.empty()) continue;
    if (part == "..") {
      *trouble = Refused(EPERM, "leads out of the folder by \"..\"", "name a path inside it");
      return Folder(-1);
    }
    at = Enter(at, part, makes, trouble);
  }
  *last = path.name.substr(begin);
  return at;
}

int FlagsOf(EntryUse use) {
  switch (use) {
    case EntryUse::kRead:
    case EntryUse::kShow:
      return O_RDONLY;
    case EntryUse::kAppend:
      return O_RDWR | O_CREAT | O_APPEND;
    case EntryUse::kLock:
      return O_RDWR | O_CREAT;
    case EntryUse::kRewrite:
      return O_WRONLY | O_CREAT;
    case EntryUse::kCreate:
      return O_WRONLY | O_CREAT | O_EXCL;
  }
  return O_RDONLY;
}

// Judges what was opened, so that nobody can put another file in its place meanwhile.
OpenedEntry Judge(const Folder& folder, EntryUse use, const struct stat& found) {
  if (!S_ISREG(found.st_mode)) {
    return Refused(EPERM,
                   std::string("is ") + KindOf(found.st_mode) + " of user " +
                       std::to_string(found.st_uid) + ", and has to be a file",
                   "remove it");
  }
  if (folder.IsOwn()) return {};
  const bool is_own = found.st_uid == geteuid();
  if (is_own && found.st_nlink > 1) {
    return Refused(EPERM,
                   "is a file of user " + std::to_string(found.st_uid) +
                       " that has another name elsewhere, in a folder of user " +
                       std::to_string(folder.owner()),
                   "remove it");
  }
  const bool reads = use == EntryUse::kRead || use == EntryUse::kShow;
  if (reads || is_own || found.st_uid == folder.owner()) return {};
  return Refused(EPERM,
                 "belongs to user " + std::to_string(found.st_uid) + ", and has to be user " +
                     std::to_string(geteuid()) + "'s or the folder's, user " +
                     std::to_string(folder.owner()) + "'s",
                 "remove it");
}

}  // namespace

EntryPath EntryOf(const std::string& path, const std::string& folder) {
  const bool is_below = !folder.empty() && path.size() > folder.size() + 1 &&
                        path.compare(0, folder.size(), folder) == 0 && path[folder.size()] == '/';
  if (is_below) return {folder, path.substr(folder.size() + 1)};
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {".", path};
  return {slash == 0 ? "/" : path.substr(0, slash), path.substr(slash + 1)};
}

EntryPath LogEntryOf(const std::string& path) {
  const size_t logs = path.rfind("/logs/");
  return EntryOf(path, logs == std::string::npos ? "" : path.substr(0, logs));
}

OpenedEntry OpenEntry(const EntryPath& path, EntryUse use, mode_t mode) {
  OpenedEntry trouble;
  std::string name;
  const Folder folder = Walk(path, /*makes=*/false, &name, &trouble);
  if (!folder.ok()) return trouble;
  const bool is_trusted = folder.IsOwn() && use != EntryUse::kShow;
  const int flags =
      FlagsOf(use) | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (is_trusted ? 0 : O_NOFOLLOW);
  OpenedEntry opened;
  opened.descriptor = openat(folder.get(), name.c_str(), flags, mode);
  if (!opened.ok()) return NotOpened(folder, name, errno);
  struct stat found = {};
  OpenedEntry verdict;
  if (fstat(opened.descriptor, &found) != 0) {
    verdict = Failed(errno);
  } else if (!is_trusted) {
    verdict = Judge(folder, use, found);
  }
  const bool empties = verdict.error == 0 && use == EntryUse::kRewrite && found.st_size > 0;
  if (empties && ftruncate(opened.descriptor, 0) != 0) verdict = Failed(errno);
  if (verdict.error == 0) return opened;
  close(opened.descriptor);
  return verdict;
}

OpenedEntry MakeEntryFolder(const EntryPath& path) {
  OpenedEntry result;
  std::string name;
  MakeFolder(path.folder);  // the walk says what is wrong with it
  const Folder above = Walk(path, /*makes=*/true, &name, &result);
  if (above.ok()) {
    Folder folder = Enter(above, name, /*makes=*/true, &result);
    result.descriptor = folder.Release();
  }
  return result;
}

OpenedEntry OpenFolderOf(const EntryPath& path) {
  OpenedEntry result;
  std::string name;
  result.descriptor = Walk(path, /*makes=*/false, &name, &result).Release();
  return result;
}

void RemoveEntry(const EntryPath& path) {
  OpenedEntry ignored;
  std::string name;
  const Folder folder = Walk(path, /*makes=*/false, &name, &ignored);
  if (folder.ok()) unlinkat(folder.get(), name.c_str(), 0);
}

int MakeFolder(const std::string& path) {
  struct stat info = {};
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), kFolderMode) != 0 && errno != EEXIST) {
      const int why = errno;
      // A folder that is there may lie in one that this user cannot even write.
      if (stat(part.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) return why;
    }
    if (end == std::string::npos) break;
  }
  if (stat(path.c_str(), &info) != 0) return errno;
  return S_ISDIR(info.st_mode) ? 0 : ENOTDIR;
}

}  // namespace weft
