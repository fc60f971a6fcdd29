#include "data/prepare/cache_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "data/whole_file.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

bool IsOwnGroup(gid_t group) {
  if (group == getegid()) return true;
  std::vector<gid_t> groups(static_cast<size_t>(std::max(getgroups(0, nullptr), 0)));
  const int count = getgroups(static_cast<int>(groups.size()), groups.data());
  groups.resize(static_cast<size_t>(std::max(count, 0)));
  return std::find(groups.begin(), groups.end(), group) != groups.end();
}

bool IsSharedFolder(const struct stat& folder) {
  return (folder.st_mode & S_IWGRP) != 0 && IsOwnGroup(folder.st_gid);
}

}  // namespace

absl::Status CheckCacheFolder(const std::string& folder, bool makes, bool is_private,
                              absl::string_view option) {
  std::error_code error;
  const bool is_made = makes && fs::create_directories(folder, error);
  if (is_made && is_private) fs::permissions(folder, fs::perms::owner_all, error);
  // Whatever the umask.
  if (is_made) fs::permissions(folder, fs::perms::others_write, fs::perm_options::remove, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": cannot be made: ", error.message(),
                                                   "; name another with ", option));
  }
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) return absl::OkStatus();
  if ((info.st_mode & S_IWOTH) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        folder, ": everybody may write in it, and so could give any tokens for those of a text; ",
        "take that away (chmod o-w) and remove what is in it, or name a folder of your own with ",
        option));
  }
  if (info.st_uid == geteuid() || info.st_uid == 0 || geteuid() == 0 || IsSharedFolder(info)) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(folder, ": is of the user ", info.st_uid, ", who could give any tokens for ",
                   "those of a text; name a folder of your own with ", option, ", or one that a ",
                   "group of yours shares (chmod g+w)"));
}

std::optional<gid_t> GroupOfCacheFolder(const std::string& folder) {
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0 || !IsSharedFolder(info)) return std::nullopt;
  return info.st_gid;
}

absl::Status CheckTrustedFile(const std::string& path) {
  struct stat folder = {}, info = {};
  const std::string parent = fs::path(path).parent_path().string();
  if (lstat(path.c_str(), &info) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(path, ": cannot be looked at"));
  }
  const auto refused = [&path](const auto&... why) {
    return absl::PermissionDeniedError(absl::StrCat(path, ": ", why...));
  };
  constexpr char kRemove[] = "; remove it, and it is made again";
  if (S_ISLNK(info.st_mode)) return refused("is a link, expected a file", kRemove);
  if (!S_ISREG(info.st_mode)) return refused("is no regular file", kRemove);
  if ((info.st_mode & S_IWOTH) != 0) return refused("everybody may write to it", kRemove);
  if (stat(parent.c_str(), &folder) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat(parent, ": cannot be looked at"));
  }
  const bool is_shared = IsSharedFolder(folder);
  // A group can be given to a file only by who is in it.
  const bool is_of_group = is_shared && info.st_gid == folder.st_gid;
  if ((info.st_mode & S_IWGRP) != 0 && !is_of_group) {
    return refused("its group ", info.st_gid, " may write to it", kRemove);
  }
  const bool is_own = info.st_uid == geteuid() || info.st_uid == 0 ||
                      (geteuid() == 0 && info.st_uid == folder.st_uid);
  if (!is_own && is_shared && !is_of_group) {
    return refused("is of the user ", info.st_uid, " and of the group ", info.st_gid,
                   ", expected the group of the folder; let that user give it (chgrp ",
                   folder.st_gid, ") or remove it");
  }
  if (!is_own && !is_shared) {
    return refused("is of the user ", info.st_uid, ", and the folder is shared with no group of ",
                   "this one", kRemove);
  }
  if (faccessat(AT_FDCWD, path.c_str(), R_OK, AT_EACCESS) == 0) return absl::OkStatus();
  return refused("is of the user ", info.st_uid, " and cannot be read: ", std::strerror(errno),
                 "; let that user allow it (chmod g+r) or remove it");
}

bool IsTrustedFile(const std::string& path) {
  return CheckTrustedFile(path).ok();
}

std::optional<std::string> ReadTrustedFile(const std::string& path, int64_t most_bytes) {
  if (!IsTrustedFile(path)) return std::nullopt;
  absl::StatusOr<std::string> text = ReadWholeFile(path, most_bytes);
  return text.ok() ? std::optional(*std::move(text)) : std::nullopt;
}

}  // namespace weft
