#include "data/prepare/cache_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

}  // namespace

absl::Status CheckCacheFolder(const std::string& folder, bool makes, bool is_private) {
  std::error_code error;
  const bool is_made = makes && fs::create_directories(folder, error);
  if (is_made && is_private) fs::permissions(folder, fs::perms::owner_all, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat(folder, ": cannot be made: ", error.message(),
                                                   "; name another with data.cache"));
  }
  struct stat info = {};
  if (stat(folder.c_str(), &info) != 0) return absl::OkStatus();
  if ((info.st_mode & S_IWOTH) != 0) {
    return absl::PermissionDeniedError(absl::StrCat(
        folder, ": everybody may write in it, and so could give any tokens for those ",
        "of a text; take that away (chmod o-w), or name a folder of your own with ", "data.cache"));
  }
  const bool is_shared = (info.st_mode & S_IWGRP) != 0 && IsOwnGroup(info.st_gid);
  if (info.st_uid == geteuid() || info.st_uid == 0 || geteuid() == 0 || is_shared) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(
      absl::StrCat(folder, ": is of the user ", info.st_uid, ", who could give any tokens for ",
                   "those of a text; name a folder of your own with data.cache, or one that a ",
                   "group of yours shares (chmod g+w)"));
}

bool IsTrustedFile(const std::string& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && (info.st_mode & S_IWOTH) == 0;
}

std::optional<std::string> ReadTrustedFile(const std::string& path, int64_t most_bytes) {
  if (!IsTrustedFile(path)) return std::nullopt;
  absl::StatusOr<std::string> text = ReadWholeFile(path, most_bytes);
  return text.ok() ? std::optional(*std::move(text)) : std::nullopt;
}

}  // namespace weft
