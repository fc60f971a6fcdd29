#include "checkpoint/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plan/errors.h"
#include "process/failpoint.h"
#include "xxhash.h"

namespace weft {
namespace {

constexpr size_t kReadBytes = size_t{1} << 20;

std::string HexText(XXH128_hash_t hash) {
  return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

}  // namespace

absl::Status FileError(int error, const std::string& path, absl::string_view action) {
  const std::string message = absl::StrCat(path, ": ", action, " failed: ", std::strerror(error));
  if (error == EFBIG || error == EDQUOT || error == ENOSPC) {
    return absl::ResourceExhaustedError(message);
  }
  return absl::Status(absl::ErrnoToStatusCode(error), message);
}

absl::Status EntryError(const OpenedEntry& entry, const std::string& path,
                        absl::string_view action) {
  if (entry.error != ELOOP && entry.error != EPERM) return FileError(entry.error, path, action);
  return absl::FailedPreconditionError(absl::StrCat(path, ": ", action, " failed: ", entry.why));
}

std::string HashBytes(absl::string_view bytes) {
  return HexText(XXH3_128bits(bytes.data(), bytes.size()));
}

absl::StatusOr<std::string> HashFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, path, "open");
  XXH3_state_t* state = XXH3_createState();
  CHECK(state != nullptr);
  XXH3_128bits_reset(state);
  std::vector<char> buffer(kReadBytes);
  ssize_t got = 0;
  int error = 0;
  do {
    got = read(fd, buffer.data(), buffer.size());
    if (got > 0) XXH3_128bits_update(state, buffer.data(), static_cast<size_t>(got));
    error = got < 0 ? errno : 0;
  } while (got > 0 || error == EINTR);
  const std::string hash = HexText(XXH3_128bits_digest(state));
  XXH3_freeState(state);
  close(fd);
  if (error != 0) return FileError(error, path, "read");
  return hash;
}

absl::StatusOr<std::unique_ptr<DurableFile>> DurableFile::Create(const EntryPath& entry,
                                                                 int64_t bytes) {
  std::unique_ptr<DurableFile> file(new DurableFile);
  Failpoint("file.create");
  const std::string path = entry.text();
  const OpenedEntry opened = OpenEntry(entry, EntryUse::kRewrite);
  if (!opened.ok()) return EntryError(opened, path, "create");
  file->entry_ = entry;
  file->path_ = path;
  file->promised_ = bytes;
  file->fd_ = opened.descriptor;
  // posix_fallocate will not do: where the file system cannot reserve, it writes every block
  // instead.
  if (bytes > 0 && fallocate(file->fd_, 0, 0, bytes) != 0 && errno != EOPNOTSUPP &&
      errno != ENOSYS && errno != EINTR) {
    return FileError(errno, path, absl::StrCat("reserving ", bytes, " bytes"));
  }
  file->hash_ = XXH3_createState();
  CHECK(file->hash_ != nullptr);
  XXH3_128bits_reset(file->hash_);
  return file;
}

DurableFile::~DurableFile() {
  if (fd_ >= 0) close(fd_);
  if (hash_ != nullptr) XXH3_freeState(hash_);
  if (!complete_ && !path_.empty()) RemoveEntry(entry_);
}

absl::Status DurableFile::Append(absl::string_view bytes) {
  XXH3_128bits_update(hash_, bytes.data(), bytes.size());
  Failpoint("file.append");
  while (!bytes.empty()) {
    const ssize_t put = write(fd_, bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return FileError(errno, path_, "write");
    written_ += put;
    Failpoint("file.appended");
    bytes.remove_prefix(static_cast<size_t>(put));
  }
  return absl::OkStatus();
}

absl::Status DurableFile::Close() {
  if (written_ != promised_) {
    return absl::DataLossError(
        absl::StrCat(path_, ": wrote ", written_, " bytes, promised ", promised_));
  }
  Failpoint("file.sync");
  if (fsync(fd_) != 0) return FileError(errno, path_, "fsync");
  Failpoint("file.synced");
  const int closed = close(fd_);
  fd_ = -1;
  if (closed != 0 && errno != EINTR) return FileError(errno, path_, "close");
  complete_ = true;
  return absl::OkStatus();
}

std::string DurableFile::hash() const {
  return HexText(XXH3_128bits_digest(hash_));
}

absl::Status SyncFolder(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return FileError(errno, folder, "open");
  Failpoint("folder.sync");
  const int synced = fsync(fd);
  const int error = errno;
  close(fd);
  // A file system that has no durable folders says so with EINVAL.
  if (synced != 0 && error != EINVAL) return FileError(error, folder, "fsync");
  return absl::OkStatus();
}

absl::Status MakeFolders(const std::string& folder) {
  std::vector<std::string> missing;  // innermost first
  std::string path = folder;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  struct stat info = {};
  while (stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT) return FileError(errno, path, "stat");
    missing.push_back(path);
    path = ParentOf(path);
  }
  for (auto it = missing.rbegin(); it != missing.rend(); ++it) {
    // Another rank may have been faster; the name has to be durable either way.
    if (mkdir(it->c_str(), 0755) != 0 && errno != EEXIST) return FileError(errno, *it, "mkdir");
    RETURN_IF_ERROR(SyncFolder(ParentOf(*it)));
  }
  return absl::OkStatus();
}

absl::Status MakeFolders(const EntryPath& entry) {
  RETURN_IF_ERROR(MakeFolders(entry.folder));
  for (size_t end = 0; end != std::string::npos;) {
    end = entry.name.find('/', end + 1);
    const EntryPath part = {entry.folder, entry.name.substr(0, end)};
    struct stat info = {};
    const bool is_missing = lstat(part.text().c_str(), &info) != 0;
    const OpenedEntry made = MakeEntryFolder(part);
    if (!made.ok()) return EntryError(made, part.text(), "making the folder");
    close(made.descriptor);
    if (is_missing) RETURN_IF_ERROR(SyncFolder(ParentOf(part.text())));
  }
  return absl::OkStatus();
}

}  // namespace weft
